#include "trireme/measure/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/base/text.h"

namespace trireme::measure {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return std::string(trim(text.str()));
}

std::optional<uint64_t> read_field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return std::nullopt;
}

std::optional<std::string> cgroup_value(const std::string& v2_file, const std::string& v1_controller,
                                        const std::string& v1_file) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != v1_controller && !controllers.starts_with(v1_controller + ",")) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + v1_controller;
    for (std::string path = line.substr(second + 1);; path = fs::path(path).parent_path()) {
      const std::string value = read_text(root + path + "/" + (v2 ? v2_file : v1_file));
      if (!value.empty() && !value.starts_with("max") && value != "-1") return value;
      if (path.size() <= 1) break;
    }
  }
  return std::nullopt;
}

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    const std::string candidate = std::string(folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string find_library(const std::string& name, std::vector<std::string> folders) {
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    const auto first = split(path, ':');
    folders.insert(folders.begin(), first.begin(), first.end());
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                             "/usr/local/lib", "/usr/local/cuda/lib64"}) {
    folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    if (access((folder + "/" + name).c_str(), R_OK) == 0) return folder + "/" + name;
  }
  return {};
}

std::vector<std::string> library_folders(const std::string& program) {
  const std::string bytes = read_text(program);
  const size_t at = bytes.find("$ORIGIN/");  // programs of this project begin DT_RUNPATH with it
  std::vector<std::string> folders;
  if (at == bytes.npos) return folders;
  for (const std::string_view part : split(bytes.c_str() + at, ':')) {
    folders.emplace_back(part);
    if (part.starts_with("$ORIGIN")) folders.back().replace(0, 7, fs::path(program).parent_path());
  }
  return folders;
}

int try_peer_memory() {
  const int fd = memfd_create("trireme-doctor", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 4096) != 0) return errno;
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno;
  std::memcpy(memory, "oars", 4);
  const pid_t owner = fork();  // holds the file; the other opens it
  if (owner == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const pid_t peer = fork();
  if (peer == 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", owner, fd);
    const int other = open(path, O_RDWR | O_CLOEXEC);
    if (other < 0) _exit(errno);
    const void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    _exit(mapped == MAP_FAILED ? errno : std::memcmp(mapped, "oars", 4) == 0 ? 0 : EIO);
  }
  int status = 0;
  const int error = owner < 0 || peer < 0 ? EAGAIN : waitpid(peer, &status, 0) < 0 ? errno : WEXITSTATUS(status);
  if (owner > 0) {
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
  }
  munmap(memory, 4096);
  close(fd);
  return error;
}

Question::Question(const std::string& program, std::vector<std::string> arguments) {
  int ends[2];
  if (program.empty() || pipe2(ends, O_CLOEXEC) != 0) return;
  fd_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program;
  std::vector<char*> argv = {name.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
}

Question::~Question() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (fd_ >= 0) close(fd_);
}

std::string Question::answer(Deadline deadline) {
  constexpr size_t kMost = 1 << 20;
  char bytes[512];
  pollfd ready{fd_, POLLIN, 0};
  while (fd_ >= 0 && text_.size() < kMost) {
    const int count_ready = poll(&ready, 1, deadline.left_ms(1000));
    if (count_ready < 0 || (count_ready == 0 && deadline.expired())) break;
    if (count_ready == 0) continue;
    const ssize_t count = read(fd_, bytes, sizeof bytes);
    if (count <= 0) break;
    text_.append(bytes, static_cast<size_t>(count));
  }
  return text_;
}

std::vector<std::string> gpu_card_arguments() {
  return {"--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader,nounits"};
}

std::vector<GpuCard> parse_gpu_cards(std::string_view text) {
  std::vector<GpuCard> cards;
  for (const std::string_view line : split(text, '\n')) {
    const auto cells = split(line, ',');
    if (cells.size() != 4) continue;
    const std::string mebibytes(trim(cells[1]));
    char* end = nullptr;
    const uint64_t memory = std::strtoull(mebibytes.c_str(), &end, 10);
    if (end == mebibytes.c_str()) continue;
    cards.push_back(
        {std::string(trim(cells[0])), memory << 20, std::string(trim(cells[2])), std::string(trim(cells[3]))});
  }
  return cards;
}

std::vector<GpuCard> ask_for_gpus(Deadline deadline) {
  Question question(find_in_path("nvidia-smi"), gpu_card_arguments());
  return parse_gpu_cards(question.answer(deadline));
}

}  // namespace trireme::measure
