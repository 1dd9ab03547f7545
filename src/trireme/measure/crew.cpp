#include "trireme/measure/crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/signals.h"
#include "trireme/base/text.h"

namespace trireme::measure {
namespace {

using namespace std::chrono_literals;

constexpr int kTickMs = 100;
constexpr auto kLongestAnswer = std::chrono::seconds(1800);

/// What belongs to a job that this process may be a rank of; the crew is a job of its own.
bool is_of_a_job(std::string_view name) {
  constexpr std::array<std::string_view, 17> kNames = {
      "TRIREME_RANK", "TRIREME_WORLD_SIZE", "TRIREME_LOCAL_RANK", "TRIREME_LOCAL_SIZE", "TRIREME_MASTER",
      "TRIREME_JOB",  "TRIREME_TOKEN",      "TRIREME_TOKEN_FILE", "TRIREME_LISTEN_FD",  "TRIREME_BIND",
      "RANK",         "WORLD_SIZE",         "LOCAL_RANK",         "LOCAL_WORLD_SIZE",   "MASTER_ADDR",
      "MASTER_PORT",  "TRIREME_TRANSPORT"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("OMPI_COMM_") ||
         name.starts_with("PMIX_") || name.starts_with("SLURM_") || name.starts_with("TORCHELASTIC_");
}

std::vector<std::string> environment_with(const Crew::Variables& added) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const auto& pair) { return pair.first == name; });
    if (!replaced && !is_of_a_job(name)) variables.emplace_back(text);
  }
  for (const auto& [name, value] : added) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string describe_end(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return fmt::format("ended with exit code {}", info.si_status);
  const char* name = sigabbrev_np(info.si_status);
  return name != nullptr ? fmt::format("was killed by SIG{}", name) : fmt::format("was killed by {}", info.si_status);
}

/// Whether it has ended; it stays to be waited for.
bool has_ended(pid_t pid, siginfo_t& info) {
  info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

}  // namespace

void check_interrupted() {
  if (const int signal = HeldSignals::received(); signal != 0) throw Interrupted{signal};
}

Crew::Crew(std::string name, const std::vector<Member>& members, Guardian& guardian)
    : name_(std::move(name)), guardian_(guardian), errors_(memfd_create("trireme-bench", MFD_CLOEXEC)) {
  if (errors_.get() < 0) throw SystemError("make a file in memory", errno);
  auto [commands_end, commands] = make_pipe();
  auto [answers, answers_end] = make_pipe();
  commands_ = std::move(commands);
  answers_ = std::move(answers);
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Spawn spawn;
  spawn.guardian_fd = guardian_.fd();
  pthread_sigmask(SIG_SETMASK, nullptr, &spawn.mask);
  try {
    for (const Member& member : members) {
      const bool leads = running_.empty();
      std::vector<std::string> argv = member.argv, environment = environment_with(member.environment);
      const std::vector<char*> arguments = pointers_to(argv), variables = pointers_to(environment);
      spawn.path = argv[0].c_str();
      spawn.argv = arguments.data();
      spawn.environment = variables.data();
      spawn.kept_fd = member.kept_fd;
      spawn.standard[0] = leads ? commands_end.get() : nothing.get();
      spawn.standard[1] = leads ? answers_end.get() : errors_.get();
      spawn.standard[2] = errors_.get();
      const pid_t pid = start_process(spawn);
      if (pid < 0) throw SystemError("start " + member.name, errno, errno == EAGAIN ? "too many processes" : "");
      running_.push_back({member.name, pid});
      if (spawn.error != 0) throw SystemError("run " + argv[0], spawn.error);
    }
  } catch (...) {
    stop(SIGKILL, 2s);
    throw;
  }
}

Crew::~Crew() {
  commands_.reset();
  if (!gave_up_) stop(0, 3s);
  if (!running_.empty()) stop(SIGTERM, 2s);
  if (!running_.empty()) stop(SIGKILL, 2s);
}

void Crew::stop(int signal, std::chrono::milliseconds time) {
  const Deadline deadline = Deadline::after(time);
  for (const Process& process : running_) {
    if (signal == SIGKILL) {
      kill(-process.pid, SIGKILL);
    } else if (signal != 0) {
      kill(process.pid, signal);  // mpirun ends its ranks by itself
    }
  }
  while (true) {
    std::erase_if(running_, [this](const Process& process) {
      siginfo_t info;
      if (!has_ended(process.pid, info)) return false;
      kill(-process.pid, SIGKILL);  // what it started and left
      waitpid(process.pid, nullptr, 0);
      guardian_.forget(process.pid);
      return true;
    });
    if (running_.empty() || deadline.expired()) return;
    std::this_thread::sleep_for(5ms);
  }
}

bool Crew::somebody_ended() const {
  siginfo_t info;
  return std::any_of(running_.begin(), running_.end(), [&](const Process& p) { return has_ended(p.pid, info); });
}

std::string Crew::quotation() const {
  char bytes[4096];
  const off_t size = lseek(errors_.get(), 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(sizeof bytes));
  const ssize_t length = pread(errors_.get(), bytes, sizeof bytes, from);
  std::vector<std::string> lines;
  for (const std::string_view line : split({bytes, static_cast<size_t>(std::max<ssize_t>(length, 0))}, '\n')) {
    // Ranks that fail together often say the same.
    if (!line.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.emplace_back(line);
  }
  if (lines.size() > 12) lines.erase(lines.begin(), lines.end() - 12);
  return lines.empty() ? "" : "it said:\n    " + join(lines, "\n    ");
}

void Crew::fail(const std::string& doing) {
  gave_up_ = true;
  // One that was killed takes the others with it: give them the time to end, to tell the cause from what followed.
  std::this_thread::sleep_for(300ms);
  std::string cause;
  bool by_signal = false;
  for (const Process& process : running_) {
    siginfo_t info;
    if (!has_ended(process.pid, info)) continue;
    const bool killed = info.si_code != CLD_EXITED;
    if (!cause.empty() && (by_signal || !killed)) continue;
    cause = fmt::format("{} (pid {}) {} {}", process.name, process.pid, describe_end(info), doing);
    by_signal = killed;
  }
  if (cause.empty()) cause = fmt::format("{} stopped answering {}", name_, doing);
  throw Error(cause, quotation());
}

std::string Crew::read_line(std::chrono::seconds time) {
  const Deadline deadline = Deadline::after(time);
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    check_interrupted();
    pollfd fd{answers_.get(), POLLIN, 0};
    if (poll(&fd, 1, kTickMs) > 0) {
      char bytes[1 << 16];
      const ssize_t length = read(answers_.get(), bytes, sizeof bytes);
      if (length == 0) return {};
      if (length > 0) unread_.append(bytes, static_cast<size_t>(length));
    } else if (somebody_ended() || deadline.expired()) {
      return {};
    }
  }
}

std::string Crew::wait_until_ready(std::chrono::seconds time) {
  gave_up_ = true;
  const std::string line = read_line(time);
  if (!line.starts_with("ready")) fail("before it was ready");
  gave_up_ = false;
  return std::string(trim(std::string_view(line).substr(5)));
}

std::string Crew::ask(const std::string& command) {
  const std::string line = command + "\n";
  gave_up_ = true;
  if (write(commands_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    fail("before: " + command);
  }
  const std::string answer = read_line(kLongestAnswer);
  if (!answer.starts_with("ok") && !answer.starts_with("error")) fail("during: " + command);
  gave_up_ = false;
  if (answer.starts_with("error"))
    throw Refused(fmt::format("{}: {}", name_, trim(std::string_view(answer).substr(5))));
  return std::string(trim(std::string_view(answer).substr(2)));
}

}  // namespace trireme::measure
