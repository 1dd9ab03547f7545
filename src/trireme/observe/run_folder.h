// The folder of a run: where its files are, and that one job at a time uses it.
//
//   runs/default-1/   config.toml  events.jsonl  report.html  checkpoints/  tensorboard/  traces/  lock
//   runs/latest/      links to the files of the newest: [Note: The newest run]
#pragma once

#include <filesystem>
#include <string>

#include "trireme/base/fd.h"

namespace trireme {

/// Where the files of a run folder are: a value, for all ranks. Nothing is looked at or made.
struct RunPaths {
  std::filesystem::path folder;

  std::filesystem::path config() const { return folder / "config.toml"; }
  std::filesystem::path events() const { return folder / "events.jsonl"; }
  std::filesystem::path report() const { return folder / "report.html"; }
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  std::filesystem::path tensorboard() const { return folder / "tensorboard"; }
  std::filesystem::path traces() const { return folder / "traces"; }
  std::filesystem::path lock() const { return folder / "lock"; }
  bool operator==(const RunPaths&) const = default;
};

/// The run that a path means: the folder itself, or the one whose files a ROOT/latest links to.
RunPaths run_at(const std::filesystem::path& given);

/// Whether a live process holds the folder, as far as locks can tell. Nothing is made or waited for.
bool is_in_use(const RunPaths& run);

/// A run folder that is there, can be written, and is held by this process until the destructor. Worker 0 has it.
///
/// The lock is flock() on RunPaths::lock(): the system lets it go when the job dies, however it dies. A child that was
/// forked without exec holds it too. Where the file system knows no locks, there is a warning instead.
class RunFolder {
 public:
  /// Makes ROOT/NAME-N, N one above the highest that is there, and links ROOT/latest to it. Two jobs at once get two
  /// folders. Throws UsageError for a name that is no file name, SystemError where the folder cannot be written.
  static RunFolder create(const std::filesystem::path& root, const std::string& name);
  /// Uses this folder, and makes it where it is missing. Throws SystemError where it cannot be written, Error where
  /// another live job uses it: it names its pid and host.
  static RunFolder open(const std::filesystem::path& folder);

  const RunPaths& paths() const { return paths_; }

 private:
  explicit RunFolder(RunPaths paths);
  void take_lock();

  RunPaths paths_;
  Fd lock_;  ///< its file stays at the end: removing it would let two jobs lock two files of this name
};

}  // namespace trireme
