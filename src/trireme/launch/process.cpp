#include "trireme/launch/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {

std::pair<Fd, Fd> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw SystemError("open a pipe", errno, errno == EMFILE ? "raise the limit: ulimit -n 65536" : "");
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string find_program(const std::string& name) {
  const auto problem = [](const std::string& path) -> int {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return errno;
    if (S_ISDIR(status.st_mode)) return EISDIR;
    return access(path.c_str(), X_OK) == 0 ? 0 : errno;
  };
  const std::string cannot = "cannot run " + name + ": ";
  if (name.empty()) throw UsageError(cannot + "the name is empty", "give the program and its arguments after --");
  if (name.find('/') != std::string::npos) {
    const int error = problem(name);
    if (error != 0)
      throw UsageError(cannot + strerror(error), error == EACCES ? "make it executable: chmod +x " + name : "");
    return name;
  }
  const char* path = getenv("PATH");
  for (const std::string_view folder : split(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    const std::string candidate = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (problem(candidate) == 0) return candidate;
  }
  const bool here = problem("./" + name) == 0;
  throw UsageError(cannot + "it is not in PATH", here ? "it is in this folder: ./" + name : "give its path");
}

[[gnu::noinline]] pid_t start_process(Spawn& spawn) {
  const pid_t launcher = getpid();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler may run in the child
  const pid_t pid = vfork();                    // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);
    setpgid(0, 0);
    for (int fd = 0; fd < 3; ++fd) {
      if (spawn.standard[fd] >= 0) dup2(spawn.standard[fd], fd);
    }
    const pid_t self = getpid();
    if (spawn.guardian_fd >= 0 && write(spawn.guardian_fd, &self, sizeof self) != sizeof self) _exit(127);
    if (spawn.kept_fd >= 0) fcntl(spawn.kept_fd, F_SETFD, 0);
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action;
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL) {
        action.sa_handler = SIG_DFL;
        sigaction(signal, &action, nullptr);
      }
    }
    sigprocmask(SIG_SETMASK, &spawn.mask, nullptr);
    execve(spawn.path, spawn.argv, spawn.environment);
    spawn.error = errno;
    _exit(127);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

Guardian::Guardian(size_t max_groups) : groups_(max_groups) {
  auto [read_end, write_end] = make_pipe();
  pid_ = fork();
  if (pid_ < 0) throw SystemError("start the guardian process", errno);
  if (pid_ == 0) {
    write_end.reset();
    guard(read_end.get());
  }
  fd_ = std::move(write_end);
}

Guardian::~Guardian() {
  fd_.reset();
  waitpid(pid_, nullptr, 0);
}

void Guardian::forget(pid_t group) {
  const pid_t message = -group;
  // The pipe never fills: the guardian does nothing but read. Should it be dead, SIGPIPE must not end the job.
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  if (write(fd_.get(), &message, sizeof message) < 0 && errno == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec now{};
    sigtimedwait(&pipe_signal, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// The guardian's life. After fork() in what may be a process of many threads: system calls only.
void Guardian::guard(int fd) {
  setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  size_t count = 0;
  pid_t message;
  while (read(fd, &message, sizeof message) == sizeof message) {
    if (message > 0 && count < groups_.size()) groups_[count++] = message;
    if (message < 0) {
      pid_t* const end = groups_.data() + count;
      count = static_cast<size_t>(std::remove(groups_.data(), end, -message) - groups_.data());
    }
  }
  for (size_t i = 0; i < count; ++i) kill(-groups_[i], SIGKILL);
  _exit(0);
}

}  // namespace trireme
