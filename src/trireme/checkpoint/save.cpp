// PendingCheckpoint: the lock, the temporary folder, and the commit.
#include "trireme/checkpoint/save.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/host.h"
#include "trireme/base/json.h"
#include "trireme/base/sha256.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRecordBytes = uint64_t{256} << 20;

/// The lock goes with the process: the kernel takes it back when that dies. The text in it is for messages only.
File take_lock(const fs::path& root) {
  File lock = File::append(root / ".lock");
  if (::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw SystemError("lock " + lock.path().string(), errno);
    std::string owner(200, '\0');
    owner.resize(lock.read_at(0, std::as_writable_bytes(std::span(owner.data(), owner.size()))));
    throw Error(fmt::format("{} is being saved to by {}", root.string(),
                            owner.empty() ? "another process" : std::string(trim(owner))),
                "give each run a folder of its own, or end the other one");
  }
  const std::string self = fmt::format("process {} on {}\n", ::getpid(), host_name());
  if (::ftruncate(lock.fd(), 0) == 0) (void)!::write(lock.fd(), self.data(), self.size());
  return lock;
}

std::string draw_token() {
  std::array<std::byte, 8> bytes;
  fill_random(bytes);
  return to_hex(bytes);
}

std::vector<int> missing_shards(const SavePlace& place, int num_shards) {
  std::vector<int> missing;
  std::error_code ignored;
  for (int shard = 0; shard < num_shards; ++shard) {
    if (!fs::exists(place.temporary() / record_name(shard, num_shards), ignored)) missing.push_back(shard);
  }
  return missing;
}

/// "shards 3, 5 and 12 more of 64"
std::string name_shards(const std::vector<int>& shards, int num_shards) {
  constexpr size_t kShown = 8;
  std::vector<std::string> shown;
  for (size_t i = 0; i < shards.size() && i < kShown; ++i) shown.push_back(std::to_string(shards[i]));
  const std::string more = shards.size() > kShown ? fmt::format(" and {} more", shards.size() - kShown) : "";
  return fmt::format("shard{} {}{} of {}", shards.size() == 1 ? "" : "s", join(shown, ", "), more, num_shards);
}

/// Adds what one shard has written.
void add_record(Manifest& manifest, const SavePlace& place, int shard) {
  const std::string name = record_name(shard, manifest.num_shards);
  const Manifest record = Manifest::from_json(read_whole_file(place.temporary() / name, kMaxRecordBytes),
                                              place.temporary().filename().string(), name);
  if (record.token != place.token || record.step != place.step || record.num_shards != manifest.num_shards) {
    throw Error(fmt::format("{} is of another save: step {}, {} shards, token {}", name, record.step, record.num_shards,
                            record.token));
  }
  const auto first_file = static_cast<uint32_t>(manifest.files.size());
  for (const ManifestFile& file : record.files) {
    const uint64_t num_bytes = File::open(place.temporary() / file.name).num_bytes();
    if (num_bytes != file.num_bytes) {
      throw Error(fmt::format("{} has {} bytes instead of {}", file.name, num_bytes, file.num_bytes));
    }
    manifest.files.push_back(file);
  }
  for (ManifestPart part : record.parts) {
    part.file += first_file;
    manifest.parts.push_back(std::move(part));
  }
}

void check_meta(const std::string& meta) {
  try {
    if (!parse_strict_json(meta).is_object()) throw JsonError(0, "expected {");
  } catch (const JsonError& error) {
    throw UsageError(
        fmt::format("the meta of a checkpoint must be a JSON object: byte {}: {}", error.byte(), error.what()));
  }
}

}  // namespace

fs::path SavePlace::temporary() const { return root / (step_name(step) + ".tmp-" + token); }
fs::path SavePlace::final() const { return root / step_name(step); }

PendingCheckpoint::PendingCheckpoint(SavePlace place, File lock) : place_(std::move(place)), lock_(std::move(lock)) {}

PendingCheckpoint::PendingCheckpoint(PendingCheckpoint&& other) noexcept
    : place_(std::move(other.place_)), lock_(std::move(other.lock_)) {
  other.lock_.reset();
}

PendingCheckpoint::~PendingCheckpoint() {
  if (!lock_) return;
  try {
    remove_tree(place_.temporary());
  } catch (const std::exception&) {
    // The next save removes it.
  }
}

PendingCheckpoint PendingCheckpoint::begin(const fs::path& root, uint64_t step) {
  make_folders(root);
  File lock = take_lock(root);
  sync_folder(root);  // where an earlier commit could not: what it replaced is about to go
  remove_leftovers(root);
  SavePlace place{root, step, draw_token()};
  make_folder(place.temporary());
  return PendingCheckpoint(std::move(place), std::move(lock));
}

bool PendingCheckpoint::all_written(int num_shards) const { return missing_shards(place_, num_shards).empty(); }

void PendingCheckpoint::wait_until_written(int num_shards, Deadline deadline) const {
  constexpr auto kLongest = std::chrono::milliseconds(50);
  Clock::duration pause = std::chrono::milliseconds(1);
  for (;;) {
    const std::vector<int> missing = missing_shards(place_, num_shards);
    if (missing.empty()) return;
    if (deadline.expired()) {
      throw Error(
          fmt::format("{} did not arrive in {} in time", name_shards(missing, num_shards), place_.temporary().string()),
          "earlier checkpoints are untouched");
    }
    std::this_thread::sleep_for(std::min(pause, deadline.left()));
    pause = std::min<Clock::duration>(pause * 2, kLongest);
  }
}

PendingCheckpoint::Result PendingCheckpoint::commit(int num_shards, const std::string& meta, int keep) {
  if (!lock_) throw UsageError(fmt::format("the checkpoint of step {} was committed already", place_.step));
  if (num_shards < 1 || keep < 0) throw UsageError(fmt::format("num_shards = {}, keep = {}", num_shards, keep));
  check_meta(meta);
  if (const std::vector<int> missing = missing_shards(place_, num_shards); !missing.empty()) {
    throw Error(fmt::format("not written yet: {}", name_shards(missing, num_shards)));
  }
  const fs::path temporary = place_.temporary(), final = place_.final();
  Manifest manifest{place_.step, place_.token, num_shards, meta, {}, {}};
  for (int shard = 0; shard < num_shards; ++shard) add_record(manifest, place_, shard);
  manifest.check_complete();
  const std::string text = manifest.to_json();
  try {
    File file = File::create(temporary / kManifestName);
    file.write(text);
    file.sync();
  } catch (const SystemError& error) {
    const bool full = error.error_number() == ENOSPC || error.error_number() == EDQUOT;
    if (full) throw_disk_full(temporary, error.error_number(), text.size());
    throw;
  }
  for (int shard = 0; shard < num_shards; ++shard) remove_file(temporary / record_name(shard, num_shards));
  sync_folder(temporary);

  fault_point("checkpoint.before_rename");
  std::error_code ignored;
  const bool replaces = fs::exists(fs::symlink_status(final, ignored));
  if (replaces) {
    try {
      exchange_paths(temporary, final);
    } catch (const SystemError& error) {
      throw SystemError("replace " + final.string(), error.error_number(), "move it away; both would not fit the name");
    }
  } else {
    rename_path(temporary, final);
  }
  // From here on the new one is there. What it replaced stays until the rename is known to be on the disk.
  const File lock = std::move(*lock_);
  lock_.reset();
  fault_point("checkpoint.after_rename");
  sync_folder(place_.root);

  Result result{final, text.size(), 0, ""};
  for (const ManifestFile& file : manifest.files) result.num_bytes += file.num_bytes;
  try {
    if (replaces) remove_tree(temporary);
    if (keep > 0) result.num_removed = remove_old_checkpoints(place_.root, place_.step, keep);
  } catch (const Error& error) {
    result.warning = fmt::format("an old checkpoint could not be removed: {}", error.what());
  }
  return result;
}

void check_writable(const fs::path& root) {
  const PendingCheckpoint pending = PendingCheckpoint::begin(root, 0);
  File file = File::create(pending.place().temporary() / kManifestName);
  file.write("{}");
  file.sync();
}

PendingCheckpoint::Result save_checkpoint(const fs::path& root, uint64_t step, std::span<const ShardTensor> tensors,
                                          const std::string& meta, int keep) {
  PendingCheckpoint pending = PendingCheckpoint::begin(root, step);
  write_shard(pending.place(), 0, 1, tensors);
  return pending.commit(1, meta, keep);
}

}  // namespace trireme
