// Saves a checkpoint so that a crash at any moment leaves the old one or the new one.
//
//   worker 0      begin() ─ token ─┐                                ┌─ commit(): manifest, rename, sync, retention
//   every worker                   └─ write_shard() ─ record on disk ┘
//
// docs/checkpoints.md has the sequence of system calls and what each fault does.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

/// What a worker must know to write its shard: worker 0 has it from PendingCheckpoint and tells the others.
struct SavePlace {
  std::filesystem::path root;  ///< the same folder for all workers
  uint64_t step = 0;
  std::string token;

  std::filesystem::path temporary() const;  ///< ROOT/step-000600.tmp-TOKEN
  std::filesystem::path final() const;      ///< ROOT/step-000600
};

/// A tensor, or rows of dim 0 of it, that a shard holds.
struct ShardTensor {
  TensorView view;                   ///< shape and bytes of what this shard holds
  std::string group = "weights";     ///< the file it goes to: "weights", "optimizer"; lower-case letters
  int64_t first_row = 0;             ///< where it begins in the full tensor
  std::optional<int64_t> full_rows;  ///< of the full tensor; nothing: this is all of it
};

/// Writes shard number `shard` of `num_shards`: a file for each group that has tensors, synced, read back from the disk
/// and compared, then a record of them. Any worker, any thread; several shards at once are fine.
/// Names are unique in a checkpoint, across groups, but for parts of one tensor in several shards.
/// Throws SystemError (disk full: with the bytes needed and free), DamagedError where the disk returns other bytes than
/// it was given, UsageError for tensors that cannot be. Then nothing of this shard is left, and the others still are.
void write_shard(const SavePlace& place, int shard, int num_shards, std::span<const ShardTensor> tensors);

/// On worker 0: a save from its beginning to its commit. Threads: one at a time.
class PendingCheckpoint {
 public:
  /// Takes the lock of the folder, which is made where it is missing, removes leftovers of dead saves, and makes the
  /// temporary folder. Throws Error that names the other process where one is saving there at this moment, and
  /// SystemError where the folder cannot be written: a run should try before its first step (check_writable).
  static PendingCheckpoint begin(const std::filesystem::path& root, uint64_t step);

  PendingCheckpoint(PendingCheckpoint&&) noexcept;
  PendingCheckpoint& operator=(PendingCheckpoint&&) = delete;
  /// Without a commit, the temporary folder is removed.
  ~PendingCheckpoint();

  const SavePlace& place() const { return place_; }

  /// Whether all shards have left their records. Needs no message between workers.
  bool all_written(int num_shards) const;
  /// Looks until they have. Throws Error that names the missing shards at the deadline.
  void wait_until_written(int num_shards, Deadline deadline) const;

  struct Result {
    std::filesystem::path path;
    uint64_t num_bytes = 0;  ///< of all files
    int num_removed = 0;     ///< old checkpoints
    std::string warning;     ///< where an old one could not be removed; the new one is good all the same
  };
  /// Once all have written: checks that the shards make up whole tensors, writes the manifest, renames, syncs; then
  /// removes old ones until `keep` are left (0: all are kept). `meta` is a JSON object and comes back unchanged.
  /// Where it throws, what was committed before is untouched.
  Result commit(int num_shards, const std::string& meta, int keep);

 private:
  PendingCheckpoint(SavePlace place, File lock);

  SavePlace place_;
  std::optional<File> lock_;  // empty after a commit, and where moved from
};

/// Throws what a save would throw now, in the folder where it would: for the time before the first step.
void check_writable(const std::filesystem::path& root);

/// All of it in one process: begin, one shard, commit.
PendingCheckpoint::Result save_checkpoint(const std::filesystem::path& root, uint64_t step,
                                          std::span<const ShardTensor> tensors, const std::string& meta, int keep);

// For this folder: names inside a save, and the error of a full disk.

constexpr const char* kManifestName = "manifest.json";

/// "record-00003-of-00008.json": shard 3 has been written.
inline std::string record_name(int shard, int num_shards) {
  return fmt::format("record-{:05}-of-{:05}.json", shard, num_shards);
}

/// SystemError with the bytes needed and those free.
[[noreturn]] void throw_disk_full(const std::filesystem::path& folder, int error_number, uint64_t needed);

}  // namespace trireme
