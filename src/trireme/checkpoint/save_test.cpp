// Saving and loading: shards, parts, retention, leftovers, the lock, and disks that are full or fail.
#include "trireme/checkpoint/save.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint_test_util.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Save = CheckpointTest;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST_F(Save, ComesBackAndIsPlainSafetensors) {
  const auto result = save_step(root() / "a" / "checkpoints", 600);
  EXPECT_EQ(result.path, root() / "a" / "checkpoints" / "step-000600");
  expect_step(result.path, 600);
  EXPECT_EQ(names_in(result.path), (std::set<std::string>{"manifest.json", "weights-00000-of-00001.safetensors"}));
  uint64_t num_bytes = 0;
  for (const auto& entry : fs::directory_iterator(result.path)) num_bytes += entry.file_size();
  EXPECT_EQ(result.num_bytes, num_bytes);
  const SafetensorsFile file(result.path / "weights-00000-of-00001.safetensors");
  EXPECT_EQ(file.tensors().size(), small_model(600).size());
  EXPECT_TRUE(verify_checkpoint(result.path).empty());
}

TEST_F(Save, RowsOfATensorInSeveralShardsAndGroups) {
  const Philox random(21, "layout");
  for (uint64_t trial = 0; trial < 12; ++trial) {
    const int num_shards = 1 + static_cast<int>(random.below(5, trial * 9));
    const auto rows = static_cast<int64_t>(random.below(700, trial * 9 + 1));
    const OwnedTensor full = make_tensor("w", {rows, 1000}, trial);  // several MiB
    const OwnedTensor scalar = make_tensor("adam.step", {}, trial, DataType::kInt64);
    PendingCheckpoint pending = PendingCheckpoint::begin(root(), trial);
    int64_t first = 0;
    for (int shard = 0; shard < num_shards; ++shard) {
      const int64_t n =
          shard + 1 == num_shards
              ? rows - first
              : static_cast<int64_t>(random.below(static_cast<uint64_t>(rows - first) + 1, trial * 9 + 2));
      TensorView part{{"w", DataType::kFloat, {n, 1000}},
                      std::span(full.bytes).subspan(static_cast<size_t>(first) * 4000, static_cast<size_t>(n) * 4000)};
      std::vector<ShardTensor> tensors{{part, "weights", first, rows}};
      if (shard == 0) tensors.push_back({scalar.view(), "optimizer", 0, std::nullopt});
      EXPECT_FALSE(pending.all_written(num_shards));
      write_shard(pending.place(), shard, num_shards, tensors);
      first += n;
    }
    EXPECT_TRUE(pending.all_written(num_shards));
    const auto result = pending.commit(num_shards, "{}", 0);
    ASSERT_TRUE(verify_checkpoint(result.path).empty()) << verify_checkpoint(result.path).front().text();
    const CheckpointReader reader = CheckpointReader::open(result.path);
    std::vector<std::byte> bytes(full.bytes.size());
    reader.read("w", bytes);
    ASSERT_EQ(bytes, full.bytes);
    EXPECT_EQ(reader.group_of("w"), "weights");
    EXPECT_EQ(reader.group_of("adam.step"), "optimizer");
    for (uint64_t i = 0; i < 20; ++i) {
      const auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows) + 1, trial * 99 + i));
      const auto n = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows - begin) + 1, trial * 77 + i));
      std::vector<std::byte> some(static_cast<size_t>(n) * 4000);
      reader.read_rows("w", begin, n, some);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), full.bytes.begin() + begin * 4000));
    }
  }
}

TEST_F(Save, WrongUseIsNamed) {
  const std::vector<OwnedTensor> model = small_model(1);
  PendingCheckpoint pending = PendingCheckpoint::begin(root(), 1);
  std::vector<ShardTensor> shard = as_shard(model);
  shard[0].group = "../x";
  EXPECT_TRUE(contains(message_of([&] { write_shard(pending.place(), 0, 1, shard); }), "cannot be the group"));
  shard = as_shard(model);
  shard[1].full_rows = 3;
  EXPECT_TRUE(contains(message_of([&] { write_shard(pending.place(), 0, 1, shard); }), "rows 0 to 5 of 3"));
  shard[1].full_rows = 6;
  shard[1].first_row = 2;
  EXPECT_TRUE(contains(message_of([&] { write_shard(pending.place(), 0, 1, shard); }), "rows 2 to 7 of 6"));
  shard = as_shard(model);
  shard.push_back(shard.front());
  EXPECT_TRUE(contains(message_of([&] { write_shard(pending.place(), 0, 1, shard); }), "embedding is given twice"));
  EXPECT_TRUE(contains(message_of([&] { write_shard(pending.place(), 1, 1, as_shard(model)); }), "shard 1 of 1"));
  EXPECT_TRUE(contains(message_of([&] { pending.commit(2, "{}", 0); }), "not written yet: shards 0, 1 of 2"));
  EXPECT_TRUE(contains(message_of([&] { pending.wait_until_written(2, Deadline::after({})); }), "shards 0, 1 of 2"));
  write_shard(pending.place(), 0, 2, as_shard(model));
  write_shard(pending.place(), 1, 2, as_shard(model));
  EXPECT_TRUE(contains(message_of([&] { pending.commit(2, "{}", 0); }), "row 0 is in two shards"));
  EXPECT_TRUE(contains(message_of([&] { pending.commit(2, "[]", 0); }), "must be a JSON object"));
  EXPECT_TRUE(contains(message_of([&] { pending.commit(2, "{\"a\": nan}", 0); }), "byte 7"));
  EXPECT_TRUE(list_checkpoints(root()).empty());
}

TEST_F(Save, ReaderNamesWhatIsNotThere) {
  const auto path = save_step(root(), 3).path;
  const CheckpointReader reader = CheckpointReader::open(path);
  std::vector<std::byte> bytes(4);
  EXPECT_TRUE(contains(message_of([&] { reader.read("embeding", bytes); }), "did you mean embedding?"));
  EXPECT_TRUE(contains(message_of([&] { reader.read("embedding", bytes); }), "needs 192 bytes, but room for 4"));
  EXPECT_TRUE(contains(message_of([&] { reader.read_rows("embedding", 7, 2, bytes); }), "rows 7 to 9"));
  EXPECT_TRUE(contains(message_of([&] { CheckpointReader::open(root() / "step-000004"); }), "trireme checkpoint list"));
}

TEST_F(Save, KeepsTheNewestAndLaterOnes) {
  for (uint64_t step = 100; step <= 500; step += 100) save_step(root(), step);
  EXPECT_EQ(save_step(root(), 450, 2).num_removed, 3);
  std::vector<uint64_t> left;
  for (const CheckpointFolder& folder : list_checkpoints(root())) left.push_back(folder.step);
  EXPECT_EQ(left, (std::vector<uint64_t>{500, 450, 400}));
  EXPECT_EQ(save_step(root(), 600, 1).num_removed, 3);
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock", "step-000600"}));
}

TEST_F(Save, AnOldOneThatCannotGoIsAWarning) {
  save_step(root(), 1);
  set_faults("point=file.remove,kind=errno:EACCES,count=2");  // the first removes the record of the shard
  const auto result = save_step(root(), 2, 1);
  EXPECT_TRUE(contains(result.warning, "could not be removed")) << result.warning;
  set_faults("");
  expect_step(result.path, 2);
  save_step(root(), 3, 1);
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock", "step-000003"}));
}

TEST_F(Save, TheSameStepAgainReplacesTheOld) {
  save_step(root(), 7);
  const std::vector<OwnedTensor> other = {make_tensor("other", {3})};
  save_checkpoint(root(), 7, as_shard(other), kMeta, 1);
  EXPECT_TRUE(CheckpointReader::open(root() / "step-000007").has("other"));
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock", "step-000007"}));
}

TEST_F(Save, LeftoversOfTheDeadGoAndNothingElse) {
  fs::create_directories(root() / "step-000005.tmp-dead" / "deep");
  write_text(root() / "step-000005.tmp-dead" / "deep" / "x", "x");
  fs::create_directories(root() / "precious");
  fs::create_directory_symlink(root() / "precious", root() / "step-000006.tmp-link");
  fs::create_directory_symlink(root() / "precious", root() / "step-000005.tmp-dead" / "link");
  write_text(root() / "precious" / "file", "kept");
  write_text(root() / "step-x.tmp-1", "not ours");
  fs::create_directories(root() / "step-000004.bad");
  save_step(root(), 8);
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock", "precious", "step-000004.bad", "step-000006.tmp-link",
                                                     "step-000008", "step-x.tmp-1"}));
  EXPECT_EQ(read_text(root() / "precious" / "file"), "kept");
}

TEST_F(Save, TwoAtOnceAreRefusedByName) {
  const PendingCheckpoint first = PendingCheckpoint::begin(root(), 1);
  const std::string message = message_of([&] { PendingCheckpoint::begin(root(), 2); });
  EXPECT_TRUE(contains(message, fmt::format("is being saved to by process {} on ", ::getpid()))) << message;
  EXPECT_TRUE(fs::exists(first.place().temporary())) << "the live one was taken for a leftover";
}

TEST_F(Save, WithoutACommitNothingIsLeft) {
  {
    const PendingCheckpoint pending = PendingCheckpoint::begin(root(), 1);
    write_shard(pending.place(), 0, 1, as_shard(small_model(1)));
  }
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock"}));
}

TEST_F(Save, AZombieOfADeadSaveCannotReviveIt) {
  SavePlace place;
  {
    const PendingCheckpoint pending = PendingCheckpoint::begin(root(), 1);
    place = pending.place();
  }
  EXPECT_TRUE(contains(message_of([&] { write_shard(place, 0, 1, as_shard(small_model(1))); }), "No such file"));
  EXPECT_EQ(names_in(root()), (std::set<std::string>{".lock"}));
}

TEST_F(Save, EveryCallThatFailsLeavesTheLastOneAndTheNextSaveWorks) {
  save_step(root(), 1);
  for (const char* error : {"EIO", "ENOSPC", "EROFS"}) {
    int failed = 0;
    for (int count = 1;; ++count) {
      set_faults(fmt::format("point=file.call,kind=errno:{},count={}", error, count));
      const std::string message = message_of([&] { save_step(root(), 2, 1); });
      set_faults("");
      const Finding finding = find_newest(root());
      ASSERT_TRUE(finding.newest) << count;
      ASSERT_TRUE(finding.damaged.empty()) << count;
      expect_step(finding.newest->path, finding.newest->step);
      if (message.empty()) {
        ASSERT_EQ(finding.newest->step, 2U);
        if (names_in(root()).size() == 2) break;  // went through without meeting the fault
      } else {
        ++failed;
      }
      save_step(root(), 3, 1);  // works at once
      ASSERT_EQ(names_in(root()), (std::set<std::string>{".lock", "step-000003"})) << count;
      fs::remove_all(root() / "step-000003");
      save_step(root(), 1);
    }
    EXPECT_GT(failed, 12) << error;
    fs::remove_all(root() / "step-000002");
    save_step(root(), 1);
  }
}

TEST_F(Save, ADiskThatFillsUpAtAnyByteSaysWhatIsMissing) {
  save_step(root(), 1);
  const uint64_t needed = save_step(root(), 2).num_bytes;
  fs::remove_all(root() / "step-000002");
  const Philox random(4, "space");
  int failures = 0;
  for (uint64_t trial = 0; trial < 150; ++trial) {
    // Past the check of the free space the room is taken by somebody else, as it may be.
    set_pretended_space(random.below(2 * needed, trial));
    const std::string message = message_of([&] { save_step(root(), 2); });
    set_pretended_space(std::nullopt);
    if (message.empty()) {
      expect_step(root() / "step-000002", 2);
      fs::remove_all(root() / "step-000002");
    } else {
      ++failures;
      EXPECT_TRUE(contains(message, "No space left on device") && contains(message, "needed: ")) << message;
    }
    ASSERT_EQ(names_in(root()), (std::set<std::string>{".lock", "step-000001"}));
    expect_step(root() / "step-000001", 1);
  }
  EXPECT_GT(failures, 50);
  EXPECT_LT(failures, 150);
  set_pretended_space(100);
  const std::string message = message_of([&] { save_step(root(), 2); });
  EXPECT_TRUE(contains(message, "needed: ") && contains(message, "free: 100 B")) << message;
}

TEST_F(Save, ADiskThatReturnsOtherBytesIsNoticedAtOnce) {
  save_step(root(), 1);
  set_file_observer([](const FileEvent& event) {
    if (event.kind != FileEvent::Kind::kSync || event.path.extension() != ".safetensors") return;
    std::string text = read_text(event.path);
    text.back() = static_cast<char>(text.back() ^ 1);
    write_text(event.path, text);
  });
  const std::string message = message_of([&] { save_step(root(), 2, 1); });
  EXPECT_TRUE(contains(message, "other bytes than those just written")) << message;
  set_file_observer({});
  EXPECT_EQ(find_newest(root()).newest->step, 1U);
}

TEST_F(Save, AFolderThatCannotBeWrittenIsNamedBeforeTheFirstStep) {
  EXPECT_EQ(message_of([&] { check_writable(root() / "new"); }), "");
  EXPECT_EQ(names_in(root() / "new"), (std::set<std::string>{".lock"}));
  write_text(root() / "file", "x");
  EXPECT_TRUE(contains(message_of([&] { check_writable(root() / "file" / "x"); }), "File exists"));
  set_faults("point=file.make_folder,kind=errno:EROFS");
  const std::string message = message_of([&] { check_writable(root() / "new"); });
  EXPECT_TRUE(contains(message, "Read-only file system") && contains(message, "step-000000.tmp-")) << message;
}

}  // namespace
}  // namespace trireme
