// `trireme doctor`: what this machine and this build have, what is missing, what that costs, and how to get it.
//
// It must be quick and safe to run anywhere: it reads files, opens libraries only to see whether they are there, and
// asks other programs only under a deadline. It never loads libtorch.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/build_info.h"
#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/transport/socket.h"
#include "trireme/measure/probe.h"
#include "trireme/measure/programs.h"
#include "trireme/observe/style.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using measure::find_library, measure::GpuCard, measure::program_folder, measure::read_text;

enum class State { kGood, kAbsent, kBroken };  // shown as ✓ – ✗

struct Fact {
  std::string group, name;
  State state;
  std::string text;
  std::string cost, cure;  // of what is absent or broken
};

class Facts {
 public:
  void good(const std::string& name, const std::string& text) { add(name, State::kGood, text); }
  void absent(const std::string& name, const std::string& text, const std::string& cost, const std::string& cure) {
    add(name, State::kAbsent, text, cost, cure);
  }
  /// Something that no job can do without.
  void broken(const std::string& name, const std::string& text, const std::string& cost, const std::string& cure) {
    add(name, State::kBroken, text, cost, cure);
  }
  void begin_group(const std::string& name) { group_ = name; }
  const std::vector<Fact>& all() const { return facts_; }

 private:
  void add(const std::string& name, State state, const std::string& text, const std::string& cost = {},
           const std::string& cure = {}) {
    facts_.push_back({group_, name, state, text, cost, cure});
  }

  std::string group_;
  std::vector<Fact> facts_;
};

void check_build(Facts& facts) {
  facts.begin_group("build");
  facts.good("trireme", fmt::format("{} · {} · {} build", version_text(), kCompiler, kBuildType));
}

void check_libtorch(Facts& facts, std::vector<std::string>& folders) {
  facts.begin_group("libtorch");
  const std::string program = program_folder() + "/trireme-tensor";
  const std::string bring = "./trireme --help in the source tree brings libtorch 2.11.0 (1.4 GB) and builds with it";
  if (access(program.c_str(), X_OK) != 0) {
    facts.absent("libtorch", "this build is without it", "no training: bench comm, launch and the library still work",
                 bring);
    return;
  }
  folders = measure::library_folders(program);
  const std::string library = find_library("libtorch_cpu.so", folders);
  if (library.empty()) {
    facts.broken("libtorch", "built with it, but libtorch_cpu.so is gone from " + join(folders, ", "),
                 "trireme train cannot start", bring);
    return;
  }
  const fs::path torch = fs::path(library).parent_path().parent_path();
  std::string version = read_text(torch / "build-version");  // in the zip from pytorch.org
  if (version.empty()) {
    std::ifstream file(torch / "version.py");  // in the wheel
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("__version__ = '")) version = line.substr(15, line.rfind('\'') - 15);
    }
  }
  facts.good("libtorch", fmt::format("{} in {}", version.empty() ? "unknown version" : version, torch.string()));
}

/// What the kernel's driver tells of the cards, where nvidia-smi does not.
std::vector<GpuCard> cards_of_kernel() {
  std::vector<GpuCard> cards;
  std::error_code missing;
  for (const auto& card : fs::directory_iterator("/proc/driver/nvidia/gpus", missing)) {
    std::ifstream file(card.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) cards.push_back({std::string(trim(line.substr(6))), 0, "", ""});
    }
  }
  return cards;
}

void list_cards(Facts& facts, const std::vector<GpuCard>& cards) {
  for (size_t i = 0; i < cards.size(); ++i) {
    std::string text = cards[i].name;
    if (cards[i].memory_bytes > 0) text += " · " + format_bytes(cards[i].memory_bytes);
    if (!cards[i].compute_capability.empty()) text += " · compute capability " + cards[i].compute_capability;
    facts.good(fmt::format("GPU {}", i), text);
  }
}

/// Where libtorch's CUDA libraries are next to its wheel; they come in wheels of their own.
std::vector<std::string> nvidia_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> all = folders;
  for (const std::string& folder : folders) {
    std::error_code missing;
    const fs::path parts = fs::path(folder).parent_path().parent_path();
    for (const fs::path& root : {parts, parts / "nvidia"}) {
      for (const auto& part : fs::directory_iterator(root, missing)) all.push_back(part.path() / "lib");
    }
  }
  return all;
}

/// Driver, cards, the build's GPU code, the CUDA libraries. `folders`: where trireme-tensor looks for libraries. `smi`
/// was asked with gpu_card_arguments(). True where training on a GPU can start; else only the first thing that is
/// missing says what to do: nothing else would help.
bool check_gpu(Facts& facts, const std::vector<std::string>& folders, measure::Question& smi) {
  facts.begin_group("GPU");
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  std::vector<GpuCard> cards;
  if (driver != nullptr) cards = measure::parse_gpu_cards(smi.answer(Deadline::after(std::chrono::seconds(3))));
  if (cards.empty()) cards = cards_of_kernel();
  std::string version = cards.empty() ? "" : cards.front().driver;
  if (version.empty()) version = read_text("/sys/module/nvidia/version");
  const bool has_card = driver != nullptr && !cards.empty();
  if (has_card) {
    facts.good("CUDA driver", version.empty() ? "unknown version" : version);
  } else if (driver != nullptr || !cards.empty()) {
    facts.absent("CUDA driver",
                 driver != nullptr ? "a driver library, but no card that it can see" : "a card, but no libcuda.so.1",
                 "CPU only", "check: nvidia-smi (in a container: docker run --gpus all)");
  } else {
    facts.absent("CUDA driver", "no NVIDIA driver", "CPU only", "where there is a card: apt install nvidia-driver");
  }
  list_cards(facts, cards);

  const std::string code = measure::gpu_library();
  if (!code.empty()) {
    facts.good("GPU code", code);
  } else {
    facts.absent("GPU code", measure::kNoGpuCode, has_card ? "training uses the CPU only" : "only matters with GPUs",
                 has_card ? "cmake --preset cuda && cmake --build --preset cuda (needs nvcc 13)" : "");
  }
  std::vector<std::string> missing;
  const std::vector<std::string> places = nvidia_folders(folders);
  for (const char* name : {"libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"}) {
    if (find_library(name, places).empty()) missing.emplace_back(name);
  }
  const bool wants_libraries = has_card && !code.empty();
  if (missing.empty()) {
    facts.good("CUDA libraries", "runtime, cuBLASLt, cuDNN and NCCL are here");
  } else {
    facts.absent("CUDA libraries", "no " + join(missing, ", "),
                 wants_libraries ? "training on the GPU cannot start" : "only matters with GPUs",
                 wants_libraries ? "tools/gpu_check --print-library-path finds those of a Python with torch" : "");
  }
  return wants_libraries && missing.empty();
}

void check_mpi(Facts& facts, const std::string& mpirun, measure::Question& version) {
  facts.begin_group("MPI");
  if (mpirun.empty()) {
    facts.absent("mpirun", "not in PATH", "no mpirun, no comparison with MPI",
                 "apt install openmpi-bin libopenmpi-dev");
  } else {
    std::string answer = version.answer(Deadline::after(std::chrono::milliseconds(300)));
    answer = answer.substr(0, answer.find('\n'));
    facts.good("mpirun", fmt::format("{} in {}", answer.empty() ? "does not tell its version" : answer, mpirun));
  }
  const std::string plugin = find_library("libtrireme_mpi.so", {program_folder() + "/../lib", program_folder()});
  if (!plugin.empty()) {
    facts.good("plug-in", fs::path(plugin).lexically_normal());
  } else {
    facts.absent("plug-in", "no libtrireme_mpi.so", "no transport over MPI; TCP and shared memory still work",
                 "apt install libopenmpi-dev, then build again");
  }
}

void check_machine(Facts& facts) {
  facts.begin_group("machine");
  cpu_set_t set;
  CPU_ZERO(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const long usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
  double quota = INFINITY;
  if (const auto value = measure::cgroup_value("cpu.max", "cpu", "cpu.cfs_quota_us")) {
    double amount = 0, period = 100'000;
    std::istringstream(*value) >> amount >> period;
    if (amount > 0) quota = amount / period;
  }
  const std::string cores = usable == online ? fmt::format("{}", online) : fmt::format("{} of {}", usable, online);
  if (quota < static_cast<double>(usable)) {
    facts.absent("cores", fmt::format("{}, but the cgroup gives the time of {:.3g}", cores, quota),
                 "ranks are stopped in turns, and those that spin waste what is left",
                 fmt::format("start at most {:.0f} ranks, or raise the quota", std::max(1.0, std::floor(quota))));
  } else {
    facts.good("cores", cores);
  }

  const uint64_t total = measure::read_field("/proc/meminfo", "MemTotal").value_or(0) * 1024;
  const uint64_t available = measure::read_field("/proc/meminfo", "MemAvailable").value_or(0) * 1024;
  std::string memory = fmt::format("{} available of {}", format_bytes(available), format_bytes(total));
  if (const auto value = measure::cgroup_value("memory.max", "memory", "memory.limit_in_bytes")) {
    const uint64_t limit = std::strtoull(value->c_str(), nullptr, 10);
    if (limit < total) memory += fmt::format(", the cgroup allows {}", format_bytes(limit));
  }
  facts.good("memory", memory);

  const std::string pages = read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const size_t from = pages.find('['), to = pages.find(']');
  const std::string mode = to == pages.npos ? "" : pages.substr(from + 1, to - from - 1);
  if (mode == "always" || mode == "advise" || mode == "within_size") {
    facts.good("huge pages", "for shared memory: " + mode);
  } else {
    facts.absent("huge pages", mode.empty() ? "none in this kernel" : "for shared memory: " + mode,
                 "large collectives between processes are somewhat slower",
                 mode.empty() ? "" : "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled");
  }
}

void check_shared_memory(Facts& facts) {
  facts.begin_group("shared memory");
  const int error = measure::try_peer_memory();
  if (error == 0) {
    facts.good("peers", "a process can map another's memory file");
  } else if (error == ENOSYS || error == ENOMEM) {
    facts.broken("peers", fmt::format("cannot make a memory file: {}", strerror(error)), "no job of several processes",
                 "free memory, or run on Linux 3.17 or later");
  } else {
    facts.absent("peers", fmt::format("a process cannot map another's memory file: {}", strerror(error)),
                 "ranks of this machine must talk over TCP, several times slower",
                 "export TRIREME_TRANSPORT=tcp, or allow /proc/PID/fd (hidepid, seccomp, AppArmor)");
  }
  rlimit space;
  getrlimit(RLIMIT_AS, &space);
  if (space.rlim_cur != RLIM_INFINITY) {
    facts.absent("addresses", fmt::format("limited to {}", format_bytes(space.rlim_cur)),
                 "ranks reserve up to 256 GiB of addresses each, though not the memory, and cannot start",
                 "ulimit -v unlimited, or export TRIREME_TRANSPORT=tcp");
  }
}

void check_limits(Facts& facts) {
  facts.begin_group("limits");
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  // Rank 0 holds a connection to every rank; over TCP every rank holds one to each other one as well.
  const uint64_t ranks = limit.rlim_cur > 128 ? (limit.rlim_cur - 64) / 2 : 32;
  const std::string files =
      limit.rlim_cur == RLIM_INFINITY
          ? "unlimited"
          : fmt::format("{}: enough for {} ranks", format_count(static_cast<int64_t>(limit.rlim_cur)),
                        format_count(static_cast<int64_t>(ranks)));
  if (limit.rlim_cur < 4096) {
    facts.absent("open files", files, "larger jobs cannot start", "ulimit -n 65536");
  } else {
    facts.good("open files", files);
  }
}

void check_network(Facts& facts) {
  facts.begin_group("network");
  try {
    const Socket socket = listen_on("127.0.0.1", 0, 1);
    facts.good("loopback", "ranks can meet at 127.0.0.1");
  } catch (const Error& error) {
    facts.broken("loopback", error.what(), "no job of several processes", "ip link set lo up");
  }
  std::map<std::string, std::vector<std::string>> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&address)) inet_ntop(AF_INET6, &address, text, sizeof text);
    }
    if (text[0] != '\0') interfaces[at->ifa_name].emplace_back(text);
  }
  freeifaddrs(list);
  for (const auto& [name, addresses] : interfaces) {
    const long speed = std::strtol(read_text("/sys/class/net/" + name + "/speed").c_str(), nullptr, 10);
    facts.good(name, fmt::format("{}{}", join(addresses, ", "),
                                 speed > 0 ? fmt::format(" · {:.3g} Gbit/s", static_cast<double>(speed) / 1000) : ""));
  }
  if (interfaces.empty()) {
    facts.absent("interfaces", "none but loopback", "jobs on this machine only", "ip link shows what there is");
  }
}

void print_table(const std::vector<Fact>& facts) {
  const bool colour = has_colour(STDOUT_FILENO);
  const auto mark = [colour](State state) {
    if (state == State::kGood) return emphasised("✓", Emphasis::kGreen, colour);
    if (state == State::kAbsent) return emphasised("–", Emphasis::kYellow, colour);
    return emphasised("✗", Emphasis::kRed, colour);
  };
  std::string group;
  for (const Fact& fact : facts) {
    if (fact.group != group) fmt::print("{}{}\n", group.empty() ? "" : "\n", fact.group);
    group = fact.group;
    fmt::print("  {} {:<14} {}\n", mark(fact.state), fact.name, fact.text);
    if (!fact.cost.empty()) fmt::print("    {:<14} {}\n", "", fact.cost);
    if (!fact.cure.empty()) fmt::print("    {:<14} → {}\n", "", fact.cure);
  }
}

int run(bool json) {
  const std::string mpirun = measure::find_in_path("mpirun");
  measure::Question mpi_version(mpirun, {"--version"});
  measure::Question smi(measure::find_in_path("nvidia-smi"), measure::gpu_card_arguments());
  Facts facts;
  std::vector<std::string> folders;
  check_build(facts);
  check_libtorch(facts, folders);
  const bool gpu_is_ready = check_gpu(facts, folders, smi);
  check_machine(facts);
  check_shared_memory(facts);
  check_limits(facts);
  check_network(facts);
  check_mpi(facts, mpirun, mpi_version);

  int num_absent = 0, num_broken = 0;
  for (const Fact& fact : facts.all()) {
    num_absent += fact.state == State::kAbsent;
    num_broken += fact.state == State::kBroken;
  }
  if (json) {
    Json list = Json::array();
    for (const Fact& fact : facts.all()) {
      const char* state = fact.state == State::kGood ? "good" : fact.state == State::kAbsent ? "absent" : "broken";
      list.push_back({{"group", fact.group},
                      {"name", fact.name},
                      {"state", state},
                      {"text", fact.text},
                      {"cost", fact.cost},
                      {"cure", fact.cure}});
    }
    print_json({{"healthy", num_broken == 0}, {"facts", list}});
  } else {
    print_table(facts.all());
    if (num_broken > 0) {
      fmt::print("\n{} broken (✗): mend that first.\n", num_broken);
    } else {
      fmt::print("\nEverything required is here{}.\nTry next:  trireme train      trireme bench {}\n",
                 num_absent == 0 ? "" : fmt::format("; – marks {} that a job can do without", num_absent),
                 gpu_is_ready ? "train --device cuda" : "comm");
    }
  }
  return num_broken == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "what is here, what is missing, what that costs, how to get it");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one object on stdout: healthy, facts");
  command->footer(
      "✓ is there   – missing, and a job can do without   ✗ required and broken (exit code 1)\n"
      "\n"
      "Examples\n"
      "  trireme doctor\n"
      "  trireme doctor --json | jq '.facts[] | select(.state != \"good\")'\n"
      "\n"
      "Try next: trireme train");
  command->callback([json, &exit_code] { exit_code = run(*json); });
}

}  // namespace trireme::cli
