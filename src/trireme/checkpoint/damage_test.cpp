// Damage of every sort: it is noticed, named with file, byte and tensor, never loaded, and the one before is used.
#include "trireme/checkpoint/damage.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Damaged = CheckpointTest;

const std::string kFile = "weights-00000-of-00001.safetensors";

void flip(const fs::path& path, uint64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(file.get() ^ (1 << (bit % 8)));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(byte);
  if (!file) throw std::runtime_error("cannot flip a bit of " + path.string());
}

TEST_F(Damaged, EveryBitOfTheManifest) {
  const fs::path path = save_step(root(), 9).path;
  const uint64_t bits = fs::file_size(path / "manifest.json") * 8;
  for (uint64_t bit = 0; bit < bits; ++bit) {
    flip(path / "manifest.json", bit);
    const std::vector<Damage> damages = verify_checkpoint(path);
    ASSERT_EQ(damages.size(), 1U) << bit;
    ASSERT_EQ(damages.front().file, "manifest.json");
    ASSERT_THROW(CheckpointReader::open(path), DamagedError) << bit;
    flip(path / "manifest.json", bit);
  }
  expect_step(path, 9);
}

TEST_F(Damaged, TenThousandRandomBitsOfShards) {
  // Two shards of several MiB, so that pieces, files and tensors are told apart.
  const OwnedTensor a = make_tensor("a", {700, 1000}), b = make_tensor("b", {300, 1001}), c = make_tensor("c", {3});
  PendingCheckpoint pending = PendingCheckpoint::begin(root(), 1);
  const std::vector<OwnedTensor> first = {a, c}, second = {b};
  write_shard(pending.place(), 0, 2, as_shard(first));
  write_shard(pending.place(), 1, 2, as_shard(second));
  const fs::path path = pending.commit(2, "{}", 0).path;
  const CheckpointReader reader = CheckpointReader::open(path);
  const Philox random(6, "bits");
  std::vector<std::byte> all(a.bytes.size());
  int noticed = 0;
  for (uint64_t trial = 0; trial < 10000; ++trial) {
    const ManifestFile& file = reader.manifest().files[trial % 2];
    const uint64_t bit = random.below(file.num_bytes * 8, trial);
    flip(path / file.name, bit);
    const uint64_t piece = bit / 8 / kChecksumPiece * kChecksumPiece;
    // Verifying all would read 4 MB each time; the reader of one piece is the same code. Every hundredth does it all.
    try {
      const ManifestPart* hit = nullptr;
      for (const ManifestPart& part : reader.manifest().parts) {
        if (part.file == trial % 2 && part.offset <= bit / 8 && bit / 8 < part.offset + part.num_bytes()) hit = &part;
      }
      if (hit != nullptr && trial % 100 != 0) {
        const CheckpointReader fresh = CheckpointReader::open(path);
        const uint64_t row_bytes = row_bytes_of(hit->tensor);
        const auto row = static_cast<int64_t>((bit / 8 - hit->offset) / row_bytes);
        fresh.read_rows(hit->tensor.name, row, 1, std::span(all).first(row_bytes));
      } else {
        const std::vector<Damage> damages = verify_checkpoint(path);
        if (damages.size() == 1) throw DamagedError("x", damages.front());
      }
    } catch (const DamagedError& error) {
      const uint64_t at = error.damage().byte;
      // A row may begin in the piece before; that one is good, so the piece with the bit is named.
      noticed += error.damage().file == file.name && at == piece;
    }
    flip(path / file.name, bit);
  }
  EXPECT_EQ(noticed, 10000);
  EXPECT_TRUE(verify_checkpoint(path).empty());
}

TEST_F(Damaged, TruncationAtEveryLength) {
  const fs::path path = save_step(root(), 9).path;
  for (const std::string& name : {kFile, std::string("manifest.json")}) {
    const std::string whole = read_text(path / name);
    for (size_t n = 0; n < whole.size(); ++n) {
      ASSERT_EQ(::truncate((path / name).c_str(), static_cast<off_t>(n)), 0);
      const std::vector<Damage> damages = verify_checkpoint(path);
      ASSERT_EQ(damages.size(), 1U) << n;
      ASSERT_EQ(damages.front().file, name);
      if (name == kFile) {
        ASSERT_EQ(damages.front().byte, n);
      }
      write_text(path / name, whole);
    }
    write_text(path / name, whole + "x");
    ASSERT_EQ(verify_checkpoint(path).size(), 1U);
    write_text(path / name, whole);
  }
  expect_step(path, 9);
}

TEST_F(Damaged, SwappedAndStaleShards) {
  for (uint64_t step : {1, 2}) {
    PendingCheckpoint pending = PendingCheckpoint::begin(root(), step);
    for (int shard = 0; shard < 2; ++shard) {
      const std::vector<OwnedTensor> tensors = {make_tensor(shard == 0 ? "a" : "b", {100}, step)};
      write_shard(pending.place(), shard, 2, as_shard(tensors));
    }
    pending.commit(2, "{}", 0);
  }
  const fs::path old = root() / "step-000001", path = root() / "step-000002";
  const std::string first = "weights-00000-of-00002.safetensors", second = "weights-00001-of-00002.safetensors";
  const std::string good = read_text(path / first);
  fs::copy_file(old / first, path / first, fs::copy_options::overwrite_existing);
  auto damages = verify_checkpoint(path);
  ASSERT_EQ(damages.size(), 1U);
  EXPECT_EQ(damages.front().text(), first + ", byte 0 (a): wrong checksum; it is a file of another save, of step 1");
  write_text(path / first, good);
  fs::rename(path / first, path / "x");
  fs::rename(path / second, path / first);
  fs::rename(path / "x", path / second);
  damages = verify_checkpoint(path);
  ASSERT_EQ(damages.size(), 2U);
  EXPECT_TRUE(contains(damages[0].text(), "it is the file " + second)) << damages[0].text();
  EXPECT_TRUE(contains(damages[1].text(), "it is the file " + first)) << damages[1].text();
}

TEST_F(Damaged, TheOneBeforeIsUsedAndTheDamagedOneIsKept) {
  save_step(root(), 3500);
  const OwnedTensor small = make_tensor("embedding", {10}), large = make_tensor("layers.9.qkv", {1024, 512});
  const std::vector<OwnedTensor> tensors = {small, large};
  const fs::path path = save_checkpoint(root(), 4000, as_shard(tensors), "{}", 0).path;
  EXPECT_TRUE(find_newest(root()).damaged.empty());
  EXPECT_EQ(find_newest(root()).newest->step, 4000U);
  flip(path / kFile, ((uint64_t{1} << 20) + 77) * 8);
  const Finding finding = find_newest(root());
  ASSERT_TRUE(finding.newest);
  EXPECT_EQ(finding.newest->step, 3500U);
  EXPECT_TRUE(fs::exists(path)) << "finding changes nothing";
  EXPECT_EQ(set_aside_damaged(finding),
            (std::vector<std::string>{
                "checkpoint step-004000 is damaged: weights-00000-of-00001.safetensors, byte 1,048,576 (layers.9.qkv). "
                "Using step-003500 instead; the damaged one is kept as step-004000.bad"}));
  EXPECT_TRUE(fs::exists(root() / "step-004000.bad"));
  EXPECT_TRUE(find_newest(root()).damaged.empty());

  save_step(root(), 4000);
  fs::remove(path / "manifest.json");
  flip(root() / "step-003500" / kFile, 8 * 8);
  const std::vector<std::string> lines = set_aside_damaged(find_newest(root()));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "checkpoint step-004000 is damaged: manifest.json, byte 0: missing. There is no good one before it; the "
            "damaged one is kept as step-004000.bad-2");
  EXPECT_TRUE(contains(lines[1], "(count and 3 more). There is no good one before it")) << lines[1];
  EXPECT_FALSE(find_newest(root()).newest);
}

TEST_F(Damaged, AllDamagesAreListed) {
  const OwnedTensor a = make_tensor("a", {700, 1000});
  const std::vector<OwnedTensor> tensors = {a};
  PendingCheckpoint pending = PendingCheckpoint::begin(root(), 1);
  write_shard(pending.place(), 0, 2, as_shard(tensors));
  write_shard(pending.place(), 1, 2, {});
  std::vector<OwnedTensor> other = {make_tensor("b", {5})};
  const fs::path path = pending.commit(2, "{}", 0).path;
  flip(path / "weights-00000-of-00002.safetensors", 8 * 100);
  flip(path / "weights-00000-of-00002.safetensors", 8 * (uint64_t{2} << 20));
  const std::vector<Damage> damages = verify_checkpoint(path);
  ASSERT_EQ(damages.size(), 2U);
  EXPECT_EQ(damages[0].byte, 0U);
  EXPECT_EQ(damages[1].byte, uint64_t{2} << 20);
  EXPECT_EQ(damages[1].tensor, "a");
}

TEST_F(Damaged, LinksAndPipesAreNotRead) {
  const fs::path path = save_step(root(), 1).path;
  fs::rename(path / kFile, root() / "elsewhere");
  fs::create_symlink(root() / "elsewhere", path / kFile);
  EXPECT_TRUE(contains(verify_checkpoint(path).at(0).text(), "a link, which is not followed"));
  fs::remove(path / kFile);
  ASSERT_EQ(::mkfifo((path / kFile).c_str(), 0600), 0);
  EXPECT_TRUE(contains(verify_checkpoint(path).at(0).text(), kFile));
  fs::remove(path / kFile);
  EXPECT_TRUE(contains(verify_checkpoint(path).at(0).text(), "missing"));
  fs::create_directory_symlink(path, root() / "step-000002");
  EXPECT_EQ(list_checkpoints(root()).size(), 1U);
}

TEST_F(Damaged, AReadErrorIsDamageAndLackOfRightsIsNot) {
  const fs::path path = save_step(root(), 1).path;
  set_faults("point=file.read,kind=errno:EIO,count=2");
  EXPECT_TRUE(contains(verify_checkpoint(path).at(0).text(), "Input/output error"));
  set_faults("point=file.open,kind=errno:EMFILE,count=2");
  EXPECT_THROW(find_newest(root()), SystemError);
  set_faults("point=file.rename,kind=errno:EROFS");
  flip(path / kFile, 900);
  const std::vector<std::string> lines = set_aside_damaged(find_newest(root()));
  EXPECT_TRUE(contains(lines.at(0), "stays where it is (cannot rename") && contains(lines.at(0), "Read-only"))
      << lines.at(0);
}

TEST(StepName, ThereAndBack) {
  for (const uint64_t step : {uint64_t{0}, uint64_t{600}, uint64_t{999999}, uint64_t{1000000}, UINT64_MAX}) {
    EXPECT_EQ(parse_step_name(step_name(step)), step);
  }
  for (const char* name : {"step-", "step-1", "step-0000001", "step-000600.bad", "step-000600.tmp-1", "step--00001",
                           "step-18446744073709551616", "Step-000600", ""}) {
    EXPECT_FALSE(parse_step_name(name)) << name;
  }
}

}  // namespace
}  // namespace trireme
