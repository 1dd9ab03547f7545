// Ranks as processes that a test starts, hurts and watches: no launcher stands between them and the test.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/transport/socket.h"

namespace trireme {

/// For the first line of a program that tests start: it ends with the test.
void die_with_parent();

/// Where random trials begin: TRIREME_TEST_SEED, or 0. The same trials again, unless somebody wants others.
uint64_t test_seed();

/// A folder of its own under /tmp, closed to others, gone at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string read(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

using Environment = std::map<std::string, std::string>;

/// One child; its output goes to a file. Killed and waited for at the end, if it is still there.
class ChildProcess {
 public:
  /// The environment is the test's, without what launchers of any kind have left in it, and `environment` on top.
  ChildProcess(const std::vector<std::string>& argv, const Environment& environment, std::filesystem::path output,
               const std::vector<int>& kept_fds = {});
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// The exit code, or 128 + signal; nothing while it runs.
  std::optional<int> poll();
  /// The same, waited for. A failure of the test, and -1, when the process does not end in time.
  int wait(Deadline deadline);
  std::string output() const;
  /// Waits until the output has this text. A failure of the test when it does not come.
  bool wait_for(const std::string& text, Deadline deadline);

 private:
  pid_t pid_;
  std::optional<int> status_;
  std::filesystem::path output_;
};

/// How the ranks of a job reach each other.
enum class Wires { kSharedMemory, kTcp, kMixedHosts, kMpi };
std::string name_of(Wires wires);
/// What makes rank `rank` use them. Mixed hosts: two hosts, each with half of the ranks.
Environment environment_for(Wires wires, int rank, int size);

/// The ranks of one job on this machine, started as `trireme launch` would, with a folder for all that they leave.
class RankProcesses {
 public:
  struct Options {
    int size = 2;
    Wires wires = Wires::kSharedMemory;
    Environment environment;
    std::map<int, Environment> of_rank;
    std::string master;         ///< empty: a port that rank 0 inherits
    std::vector<int> kept_fds;  ///< stay open in all ranks
  };
  RankProcesses(const std::vector<std::string>& argv, const Options& options);

  int size() const { return static_cast<int>(children_.size()); }
  ChildProcess& operator[](int rank) { return children_.at(static_cast<size_t>(rank)); }
  uint16_t port() const { return port_; }
  const std::filesystem::path& folder() const { return folder_.path(); }

  /// Every rank has printed this.
  bool wait_for(const std::string& text, Clock::duration patience);
  /// Exit codes by rank; -1 and a failure of the test for one that does not end in time.
  std::vector<int> wait(Clock::duration patience);
  /// What all of them printed, for messages.
  std::string outputs() const;
  /// Names of what the ranks have left: token files, and anything else in their folders.
  std::vector<std::string> leftovers() const;

 private:
  ScratchFolder folder_;
  uint16_t port_ = 0;
  std::vector<ChildProcess> children_;
};

/// Names in /dev/shm: nothing of ours may be among them.
std::vector<std::string> shared_memory_names();

}  // namespace trireme
