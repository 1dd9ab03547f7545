// Starting one process, and making sure that none is forgotten: the launcher's seam to the operating system.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/fd.h"

namespace trireme {

/// The read end and the write end, both close-on-exec. Throws SystemError.
std::pair<Fd, Fd> make_pipe();

/// As the shell would find it. Throws UsageError, so that a wrong name is one error and not one a rank.
std::string find_program(const std::string& name);

/// All that a child touches between vfork() and execve(), where it borrows the launcher's memory.
struct Spawn {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int standard[3] = {-1, -1, -1};  ///< replacements of stdin, stdout and stderr; -1: inherited
  int kept_fd = -1;                ///< stays open in the child
  int guardian_fd = -1;            ///< Guardian::fd(): the child enters itself there before it can start anything
  sigset_t mask;
  volatile int error = 0;  ///< written by the child when there was no program to become; it then exits with 127
};

/// The child leads a process group of its own and dies with the calling thread. Costs the same whatever the size of
/// this process. Returns -1 and sets errno when there can be no more processes.
pid_t start_process(Spawn& spawn);

/// A process that waits for the launcher's end and then kills the process groups that are left: ranks die with the
/// launcher anyway, but what they started does not. One writer; calls never block for long and never throw.
class Guardian {
 public:
  /// At most `max_groups` are watched at a time. Throws SystemError.
  explicit Guardian(size_t max_groups);
  ~Guardian();
  Guardian(const Guardian&) = delete;

  /// Takes pids of new group leaders, as start_process() writes them.
  int fd() const { return fd_.get(); }
  void forget(pid_t group);

 private:
  [[noreturn]] void guard(int fd);

  std::vector<pid_t> groups_;
  pid_t pid_ = -1;
  Fd fd_;
};

}  // namespace trireme
