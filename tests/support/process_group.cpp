#include "support/process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

bool is_from_a_launcher(std::string_view variable) {
  for (const std::string_view prefix : {"TRIREME_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_"}) {
    // Where the tests find their programs is not a launcher's.
    if (variable.starts_with(prefix))
      return !variable.starts_with("TRIREME_B") && !variable.starts_with("TRIREME_TEST_");
  }
  const std::string_view name = variable.substr(0, variable.find('='));
  for (const std::string_view known : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "XDG_RUNTIME_DIR"}) {
    if (name == known) return true;
  }
  return false;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

uint64_t test_seed() {
  const char* text = std::getenv("TRIREME_TEST_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

ScratchFolder::ScratchFolder() {
  char name[] = "/tmp/trireme-test-XXXXXX";
  if (mkdtemp(name) == nullptr) throw SystemError("make a folder in /tmp", errno);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::read(const std::string& name) const { return read_file(path_ / name); }

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const Environment& environment,
                           std::filesystem::path output, const std::vector<int>& kept_fds)
    : output_(std::move(output)) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!is_from_a_launcher(text) && !environment.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> words, settings;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  for (std::string& variable : variables) settings.push_back(variable.data());
  words.push_back(nullptr);
  settings.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  for (const int fd : kept_fds) posix_spawn_file_actions_adddup2(&actions, fd, fd);
  const int error = posix_spawnp(&pid_, words[0], &actions, nullptr, words.data(), settings.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw SystemError("start " + argv[0], error);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_), output_(std::move(other.output_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || status_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::signal(int number) const {
  if (!status_) kill(pid_, number);
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return status_;
}

int ChildProcess::wait(Deadline deadline) {
  for (;;) {
    if (const auto status = poll()) return *status;
    if (deadline.expired()) break;
    usleep(1000);
  }
  ADD_FAILURE() << "process " << pid_ << " does not end; it printed\n" << output();
  return -1;
}

std::string ChildProcess::output() const { return read_file(output_); }

bool ChildProcess::wait_for(const std::string& text, Deadline deadline) {
  for (;;) {
    if (output().find(text) != std::string::npos) return true;
    if (deadline.expired() || poll()) break;
    usleep(1000);
  }
  if (output().find(text) != std::string::npos) return true;
  ADD_FAILURE() << "process " << pid_ << " has not printed \"" << text << "\" but\n" << output();
  return false;
}

std::string name_of(Wires wires) {
  switch (wires) {
    case Wires::kSharedMemory:
      return "SharedMemory";
    case Wires::kTcp:
      return "Tcp";
    case Wires::kMixedHosts:
      return "MixedHosts";
    case Wires::kMpi:
      return "Mpi";
  }
  return "?";
}

Environment environment_for(Wires wires, int rank, int size) {
  switch (wires) {
    case Wires::kSharedMemory:
      return {};
    case Wires::kTcp:
      return {{"TRIREME_TRANSPORT", "tcp"}};
    case Wires::kMixedHosts:
      return {{"TRIREME_HOST_ID", 2 * rank < size ? "host-a" : "host-b"}};
    case Wires::kMpi:
      return {{"TRIREME_TRANSPORT", "mpi"}};
  }
  return {};
}

RankProcesses::RankProcesses(const std::vector<std::string>& argv, const Options& options) {
  const auto runtime = folder() / "runtime";  // where token files go, when there are any
  std::filesystem::create_directory(runtime);
  std::filesystem::permissions(runtime, std::filesystem::perms::owner_all);
  Socket listener;
  std::string master = options.master;
  if (master.empty()) {
    listener = listen_on("127.0.0.1", 0, 128);
    port_ = local_address(listener).port;
    master = fmt::format("127.0.0.1:{}", port_);
  }
  for (int rank = 0; rank < options.size; ++rank) {
    Environment environment = {
        {"TRIREME_RANK", std::to_string(rank)},
        {"TRIREME_WORLD_SIZE", std::to_string(options.size)},
        {"TRIREME_LOCAL_RANK", std::to_string(rank)},
        {"TRIREME_LOCAL_SIZE", std::to_string(options.size)},
        {"TRIREME_MASTER", master},
        {"TRIREME_JOB", folder().filename()},
        {"TRIREME_TOKEN", "the token of " + folder().string()},
        {"XDG_RUNTIME_DIR", runtime},
    };
    std::vector<int> kept = options.kept_fds;
    if (rank == 0 && listener.valid()) {
      environment["TRIREME_LISTEN_FD"] = std::to_string(listener.fd());
      kept.push_back(listener.fd());
    }
    for (const auto& [name, value] : environment_for(options.wires, rank, options.size)) environment[name] = value;
    for (const auto& [name, value] : options.environment) environment[name] = value;
    if (const auto own = options.of_rank.find(rank); own != options.of_rank.end()) {
      for (const auto& [name, value] : own->second) environment[name] = value;
    }
    std::erase_if(environment, [](const auto& variable) { return variable.second.empty(); });
    children_.emplace_back(argv, environment, folder() / fmt::format("output-{}", rank), kept);
  }
}

bool RankProcesses::wait_for(const std::string& text, Clock::duration patience) {
  const Deadline deadline = Deadline::after(patience);
  for (ChildProcess& child : children_) {
    if (!child.wait_for(text, deadline)) return false;
  }
  return true;
}

std::vector<int> RankProcesses::wait(Clock::duration patience) {
  const Deadline deadline = Deadline::after(patience);
  std::vector<int> codes;
  for (ChildProcess& child : children_) codes.push_back(child.wait(deadline));
  return codes;
}

std::string RankProcesses::outputs() const {
  std::string text;
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    text += fmt::format("--- rank {} (pid {})\n{}", rank, children_[rank].pid(), children_[rank].output());
  }
  return text;
}

std::vector<std::string> RankProcesses::leftovers() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    const std::string name = std::filesystem::relative(entry.path(), folder());
    if (!entry.is_directory() && !name.starts_with("output-")) names.push_back(name);
  }
  return names;
}

std::vector<std::string> shared_memory_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.push_back(entry.path().filename());
  return names;
}

}  // namespace trireme
