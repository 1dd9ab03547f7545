// The launcher's event loop: signals, output and ends of processes, each step with a deadline.
#include "trireme/launch/local_launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/memory_file.h"
#include "trireme/base/sha256.h"
#include "trireme/base/text.h"
#include "trireme/comm/transport/socket.h"
#include "trireme/launch/prefixed_output.h"
#include "trireme/launch/process.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr const char* kFailures = "TRIREME_FAILURES";  // a file to which ranks add lines of JSON
constexpr int kSweepMs = 250;  // ends are swept for at least this often, should a SIGCHLD get lost

std::string random_hex(size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  fill_random(bytes);
  return to_hex(bytes);
}

/// What all ranks share: the launcher's own variables, and where the job meets.
std::vector<std::string> common_environment(const LocalLaunch& launch, const Socket& listener) {
  std::vector<std::pair<std::string, std::string>> ours = {
      {"TRIREME_WORLD_SIZE", std::to_string(launch.num_processes * launch.num_nodes)},
      {"TRIREME_LOCAL_SIZE", std::to_string(launch.num_processes)},
  };
  if (listener.valid()) {
    ours.emplace_back("TRIREME_MASTER", "127.0.0.1:" + std::to_string(local_address(listener).port));
    ours.emplace_back("TRIREME_JOB", random_hex(8));
    ours.emplace_back("TRIREME_TOKEN", random_hex(32));
  } else {
    const std::string master = launch.master_address + ":" + std::to_string(launch.master_port);
    const char* job = getenv("TRIREME_JOB");
    ours.emplace_back("TRIREME_MASTER", master);
    ours.emplace_back("TRIREME_JOB", job != nullptr ? job : master);
    if (!launch.token.empty()) ours.emplace_back("TRIREME_TOKEN", launch.token);
  }
  ours.insert(ours.end(), launch.environment.begin(), launch.environment.end());

  // A launcher under a launcher: what belonged to one rank of the outer job is not for these.
  std::vector<std::string_view> dropped = {"TRIREME_RANK", "TRIREME_LOCAL_RANK", "TRIREME_LISTEN_FD",
                                           "TRIREME_TOKEN_FILE", kFailures};
  for (const auto& [name, value] : ours) dropped.push_back(name);
  std::vector<std::string> common;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (std::find(dropped.begin(), dropped.end(), text.substr(0, text.find('='))) == dropped.end()) {
      common.emplace_back(text);
    }
  }
  for (const auto& [name, value] : ours) common.push_back(name + "=" + value);
  return common;
}

/// Of lines that ranks wrote, the first that blames no other rank; else the first.
std::optional<Error> first_cause(const std::string& lines) {
  std::optional<Error> first;
  for (const std::string_view line : split(lines, '\n')) {
    if (!Json::accept(line)) continue;  // the end, or a rank that was killed while it wrote
    Error error = failure_from_text(line);
    if (!error.where().peer) return error;
    if (!first) first = std::move(error);
  }
  return first;
}

const RankEnd* first_failed(const std::vector<RankEnd>& ends) {
  const auto first = std::find_if(ends.begin(), ends.end(),
                                  [](const RankEnd& end) { return end.failed() && !end.stopped_by_launcher; });
  return first == ends.end() ? nullptr : &*first;
}

/// Keeps the forwarded signals and SIGCHLD for signalfd, and puts everything back.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    sigaddset(&held, SIGTSTP);
    for (const int signal : kForwarded) {
      // What is ignored (SIGHUP under nohup) stays ignored.
      struct sigaction action;
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&held, signal);
    }
    pthread_sigmask(SIG_BLOCK, &held, &before_);
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;  // with SIG_IGN there would be nothing to wait for
    sigaction(SIGCHLD, &plain, &child_action_);
    fd_ = Fd(signalfd(-1, &held, SFD_NONBLOCK | SFD_CLOEXEC));
    if (fd_.get() < 0) {
      const int error = errno;
      restore();
      throw SystemError("open a signalfd", error);
    }
  }
  ~SignalsHeld() { restore(); }
  SignalsHeld(const SignalsHeld&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& before() const { return before_; }

 private:
  void restore() {
    sigaction(SIGCHLD, &child_action_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  sigset_t before_;
  struct sigaction child_action_;
  Fd fd_;
};

class Job {
 public:
  explicit Job(const LocalLaunch& launch) : launch_(launch), guardian_(static_cast<size_t>(launch.num_processes)) {
    if (launch.timeout.count() > 0) next_ = Deadline::after(launch.timeout);
    if (launch.prefix_output) output_.emplace();
    if (launch.asks_why) failures_.emplace("trireme-failures");
  }

  ~Job() {
    // Only after an exception is anybody left.
    for (const Process& process : running_) kill(-process.pid, SIGKILL);
    for (const Process& process : running_) waitpid(process.pid, nullptr, 0);
  }

  LaunchReport run() {
    start_all();
    while (!running_.empty()) {
      wait();
      reap();
      enforce();
    }
    next_.reset();
    if (output_) output_->close_pipes();
    while (output_ && !abandoned_ && (output_->wants_write(1) || output_->wants_write(2))) wait();
    report_.exit_code = exit_code();
    if (failures_) report_.told = first_cause(failures_->text());
    return std::move(report_);
  }

 private:
  enum class Phase { kRunning, kGrace, kTerminated, kKilled };
  struct Process {
    int rank;
    pid_t pid;
  };

  void start_all();
  void wait();
  void handle_signals();
  void reap();
  void enforce();
  int exit_code() const;

  /// Ranks and all that they started.
  void signal_groups(int signal) {
    for (const Process& process : running_) kill(-process.pid, signal);
  }
  /// Ranks alone: one that wants to save its work first may need its helpers for that.
  void signal_ranks(int signal) {
    for (const Process& process : running_) kill(process.pid, signal);
  }
  void enter(Phase phase, milliseconds time) {
    phase_ = phase;
    next_ = Deadline::after(time);
  }

  const LocalLaunch& launch_;
  SignalsHeld signals_;
  Guardian guardian_;
  std::optional<PrefixedOutput> output_;
  std::optional<MemoryFile> failures_;
  std::vector<Process> running_;
  Phase phase_ = Phase::kRunning;
  bool abandoned_ = false;        ///< told to stop when only output was left, which somebody is slow to read
  std::optional<Deadline> next_;  ///< when enforce() has something to do
  const Clock::time_point started_ = Clock::now();
  LaunchReport report_;
};

void Job::start_all() {
  const std::string path = find_program(launch_.argv[0]);
  std::vector<char*> argv;
  for (const std::string& argument : launch_.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  Socket listener;
  if (launch_.master_address.empty()) listener = listen_on("127.0.0.1", 0, std::max(128, launch_.num_processes));
  std::vector<std::string> common = common_environment(launch_, listener);
  if (failures_) common.push_back(std::string(kFailures) + "=" + failures_->path());
  std::vector<char*> environment;
  for (std::string& variable : common) environment.push_back(variable.data());

  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Spawn spawn;
  spawn.path = path.c_str();
  spawn.argv = argv.data();
  spawn.mask = signals_.before();
  spawn.guardian_fd = guardian_.fd();
  for (int local_rank = 0; local_rank < launch_.num_processes; ++local_rank) {
    const int rank = launch_.node_rank * launch_.num_processes + local_rank;
    const bool listens = rank == 0 && listener.valid();
    std::array own = {"TRIREME_RANK=" + std::to_string(rank), "TRIREME_LOCAL_RANK=" + std::to_string(local_rank),
                      "TRIREME_LISTEN_FD=" + std::to_string(listener.fd())};
    environment.resize(common.size());
    for (size_t i = 0; i < (listens ? 3 : 2); ++i) environment.push_back(own[i].data());
    environment.push_back(nullptr);
    spawn.environment = environment.data();
    spawn.kept_fd = listens ? listener.fd() : -1;
    // Ranks are in process groups of their own, where reading from a terminal would stop them.
    spawn.standard[0] = rank == 0 && isatty(STDIN_FILENO) == 0 ? -1 : nothing.get();
    std::array<Fd, 2> pipes;
    for (int target = 1; output_ && target <= 2; ++target) {
      pipes[target - 1] = output_->add(rank, target);
      spawn.standard[target] = pipes[target - 1].get();
    }

    const pid_t pid = start_process(spawn);
    if (pid < 0) {
      throw SystemError("start rank " + std::to_string(rank), errno,
                        errno == EAGAIN ? "too many processes: see ulimit -u and the cgroup's pids.max" : "");
    }
    running_.push_back({rank, pid});
    if (spawn.error != 0) throw SystemError("run " + launch_.argv[0], spawn.error);
  }
}

/// Returns when something has happened or is due.
void Job::wait() {
  std::array<pollfd, 4> fds{};
  fds[0] = {signals_.fd(), POLLIN, 0};
  fds[1] = {output_ && output_->wants_input() ? output_->epoll() : -1, POLLIN, 0};
  for (int target = 1; target <= 2; ++target) {
    fds[target + 1] = {output_ && output_->wants_write(target) ? target : -1, POLLOUT, 0};
  }
  poll(fds.data(), fds.size(), next_ ? next_->left_ms(kSweepMs) : kSweepMs);
  if (fds[0].revents != 0) handle_signals();
  if (fds[1].revents != 0) output_->read_ready();
  for (int target = 1; target <= 2; ++target) {
    if (fds[target + 1].revents != 0) output_->write_ready(target);
  }
}

void Job::handle_signals() {
  signalfd_siginfo info;
  while (read(signals_.fd(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    abandoned_ = running_.empty();
    if (signal == SIGTSTP) {
      signal_groups(SIGTSTP);
      raise(SIGSTOP);
      signal_groups(SIGCONT);
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      signal_ranks(signal);
    } else if (report_.interrupted_by == 0) {
      report_.interrupted_by = signal;
      if (signal == SIGINT || signal == SIGQUIT) {
        signal_groups(signal);  // as a terminal would
      } else {
        signal_ranks(signal);
      }
      if (phase_ == Phase::kRunning) enter(Phase::kGrace, launch_.grace);
    } else {
      signal_groups(SIGKILL);
      enter(Phase::kKilled, launch_.kill_after);
    }
  }
}

void Job::reap() {
  std::vector<RankEnd> ends;
  std::erase_if(running_, [&](const Process& process) {
    siginfo_t info{};
    const int waited = waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (waited == 0 && info.si_pid == 0) return false;
    int status = W_EXITCODE(255, 0);  // where somebody else in this process has waited for it
    if (waited == 0) {
      kill(-process.pid, SIGKILL);  // what it started and left; the number is ours until waitpid()
      waitpid(process.pid, &status, 0);
    }
    guardian_.forget(process.pid);
    RankEnd end{.rank = process.rank, .pid = process.pid};
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    end.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    end.stopped_by_launcher = end.failed() && (report_.interrupted_by != 0 || phase_ >= Phase::kTerminated);
    ends.push_back(end);
    return true;
  });
  // The others often end because one was killed, and one look may find them all: the killed one comes first.
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return (a.signal != 0) > (b.signal != 0); });
  report_.ends.insert(report_.ends.end(), ends.begin(), ends.end());
  const bool failed = std::any_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.failed(); });
  if (failed && phase_ == Phase::kRunning) enter(Phase::kGrace, launch_.grace);
}

/// What the present phase says once its time is up.
void Job::enforce() {
  if (!next_ || !next_->expired()) return;
  if (phase_ == Phase::kRunning) report_.timed_out = true;
  if (phase_ <= Phase::kGrace) {
    signal_groups(SIGTERM);
    enter(Phase::kTerminated, launch_.kill_after);
  } else {
    signal_groups(SIGKILL);
    enter(Phase::kKilled, launch_.kill_after);
  }
}

int Job::exit_code() const {
  if (const RankEnd* end = first_failed(report_.ends)) return end->signal != 0 ? 128 + end->signal : end->exit_code;
  if (report_.timed_out) return 124;
  // A job that takes SIGTERM as "finish up" and does has succeeded; Ctrl-C is never success.
  if (report_.interrupted_by == SIGINT) return 128 + SIGINT;
  const bool failed =
      std::any_of(report_.ends.begin(), report_.ends.end(), [](const RankEnd& end) { return end.failed(); });
  return failed ? 128 + report_.interrupted_by : 0;
}

std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string describe(const RankEnd& end) {
  const std::string who = "rank " + std::to_string(end.rank) + " (pid " + std::to_string(end.pid) + ") ";
  if (end.signal != 0) return who + "was killed by " + signal_name(end.signal);
  return who + "ended with exit code " + std::to_string(end.exit_code);
}

}  // namespace

std::string LaunchReport::text() const {
  if (exit_code == 0) return {};
  const RankEnd* const first = first_failed(ends);
  std::string text;
  if (first != nullptr) {
    text = describe(*first) + " after " + seconds_text(first->seconds);
    if (first->signal == SIGKILL) text += "\n  the launcher did not do it; out of memory? see: dmesg | grep -i oom";
  } else if (timed_out) {
    text =
        "the job did not end in time; its ranks were stopped after " + seconds_text(ends.empty() ? 0 : ends[0].seconds);
  } else {
    text = "stopped by " + signal_name(interrupted_by);
  }
  constexpr int kMaxLines = 8;
  int listed = 0, unlisted = 0, stopped = 0;
  for (const RankEnd& end : ends) {
    if (!end.failed() || &end == first) continue;
    if (end.stopped_by_launcher) {
      ++stopped;
    } else if (++listed <= kMaxLines) {
      text += "\n  " + describe(end) + ", " + seconds_text(end.seconds - first->seconds) + " later";
    } else {
      ++unlisted;
    }
  }
  if (unlisted > 0) text += "\n  and " + std::to_string(unlisted) + " more ranks failed after it";
  if (stopped > 0) {
    text +=
        "\n  " + std::to_string(stopped) + (stopped == 1 ? " rank was" : " ranks were") + " stopped by the launcher";
  }
  return text;
}

Error LaunchReport::failure() const {
  const RankEnd* const first = first_failed(ends);
  const Where where{.rank = first == nullptr ? std::nullopt : std::optional(first->rank)};
  return told ? Error(told->what(), {}, completed(told->where(), where)) : Error(text(), {}, where);
}

bool is_asked_why() { return getenv(kFailures) != nullptr; }

void tell_failure(const Error& error) {
  const Fd file(open(getenv(kFailures), O_WRONLY | O_APPEND | O_CLOEXEC));
  const std::string line = failure_to_text(error) + "\n";
  if (write(file.get(), line.data(), line.size()) < 0) return;  // the launcher is gone, or says how the rank ended
}

LaunchReport launch_locally(const LocalLaunch& launch) {
  if (launch.num_processes < 1) throw UsageError("a job needs at least one process");
  if (launch.argv.empty()) throw UsageError("no program to launch", "give the program and its arguments after --");
  if (launch.num_nodes < 1 || launch.node_rank < 0 || launch.node_rank >= launch.num_nodes) {
    throw UsageError("node rank " + std::to_string(launch.node_rank) + " is not one of " +
                     std::to_string(launch.num_nodes) + " nodes");
  }
  if (launch.num_nodes > 1 && (launch.master_address.empty() || launch.master_port == 0)) {
    throw UsageError("more than one node, and no master", "give every node --master-addr and --master-port");
  }
  if (!launch.master_address.empty() && !is_loopback(launch.master_address) && launch.token.empty()) {
    throw UsageError("a job beyond this host needs a token that its nodes share",
                     "make one: head -c 32 /dev/urandom | xxd -p -c 64 > token; chmod 600 token; "
                     "then TRIREME_TOKEN_FILE=token on every node");
  }
  return Job(launch).run();
}

}  // namespace trireme
