#include "trireme/comm/control/launch_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/comm/control/token.h"
#include "trireme/comm/transport/socket.h"

namespace trireme {
namespace {

constexpr int kAgentStorePorts = 8;
constexpr int kSlurmPorts = 4;
constexpr int kFirstSlurmPort = 20000, kLastSlurmPort = 59999;

/// The environment, with the checks that all launchers share. An empty variable counts as unset.
class Variables {
 public:
  using Look = std::function<std::optional<std::string>(const char*)>;
  explicit Variables(Look look) : look_(std::move(look)) {}

  std::optional<std::string> get(const char* name) const {
    std::optional<std::string> value = look_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  bool has(const char* name) const { return get(name).has_value(); }
  std::string get_or(const char* name, const std::string& otherwise) const { return get(name).value_or(otherwise); }

  std::optional<int> number(const char* name, int least, int most) const {
    const std::optional<std::string> text = get(name);
    if (!text) return std::nullopt;
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < least || value > most) {
      throw UsageError(fmt::format("{}=\"{}\" is not a number from {} to {}", name, *text, least, most),
                       "The launcher sets it; unset it to run alone.");
    }
    return value;
  }

  int required(const char* name, const char* because, int least, int most) const {
    const std::optional<int> value = number(name, least, most);
    if (!value) {
      throw UsageError(fmt::format("{} is set but {} is not", because, name),
                       fmt::format("Set {} as well, or unset {} to run alone.", name, because));
    }
    return *value;
  }

 private:
  Look look_;
};

struct RankNames {
  const char *rank, *size, *local_rank, *local_size;
};

void check_rank(const char* rank_name, int rank, const char* size_name, int size) {
  if (rank >= size) {
    throw UsageError(fmt::format("{}={} is outside the world: {}={}", rank_name, rank, size_name, size),
                     fmt::format("{} goes from 0 to {}.", rank_name, size - 1));
  }
}

/// Reads all four; the local pair may be missing as a whole, which `local_known` tells.
bool read_ranks(const Variables& variables, const RankNames& names, LaunchEnvironment& out) {
  constexpr int kMost = 1 << 20;
  const char* set = variables.has(names.rank) ? names.rank : names.size;
  out.rank = variables.required(names.rank, set, 0, kMost);
  out.size = variables.required(names.size, set, 1, kMost);
  check_rank(names.rank, out.rank, names.size, out.size);
  const bool local_known = variables.has(names.local_rank) || variables.has(names.local_size);
  if (local_known) {
    set = variables.has(names.local_rank) ? names.local_rank : names.local_size;
    out.local_rank = variables.required(names.local_rank, set, 0, kMost);
    out.local_size = variables.required(names.local_size, set, 1, kMost);
    check_rank(names.local_rank, out.local_rank, names.local_size, out.local_size);
    check_rank(names.local_size, out.local_size, names.size, out.size + 1);
  }
  return local_known;
}

/// Nobody said which ranks share a host: all of them when rank 0 is on loopback, else none.
void guess_local_ranks(LaunchEnvironment& out) {
  const bool one_host = is_loopback(out.master_address);
  out.local_rank = one_host ? out.rank : 0;
  out.local_size = one_host ? out.size : 1;
}

SocketAddress parse_master(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  const char* begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (error != std::errc() || stop != end || port < 1 || port > 65535 || host.empty()) {
    throw UsageError("TRIREME_MASTER=\"" + text + "\" is not address:port", "Such as 127.0.0.1:2900 or [::1]:2900.");
  }
  return {host, static_cast<uint16_t>(port)};
}

/// A job on one host meets on loopback: launchers name the host, which would open it to the network for nothing.
void prefer_loopback(LaunchEnvironment& out) {
  if (out.local_size == out.size && !is_loopback(out.master_address)) out.master_address = "127.0.0.1";
}

LaunchEnvironment read_trireme(const Variables& variables) {
  LaunchEnvironment out;
  out.launcher = Launcher::kTrireme;
  const bool local_known =
      read_ranks(variables, {"TRIREME_RANK", "TRIREME_WORLD_SIZE", "TRIREME_LOCAL_RANK", "TRIREME_LOCAL_SIZE"}, out);
  const std::string master = variables.get_or("TRIREME_MASTER", "");
  if (!master.empty()) {
    const SocketAddress address = parse_master(master);
    out.master_address = address.host;
    out.master_ports = {address.port};
  } else if (out.size > 1) {
    throw UsageError("TRIREME_RANK is set but TRIREME_MASTER is not",
                     "Set TRIREME_MASTER to address:port of rank 0 as well, or unset TRIREME_RANK to run alone.");
  }
  if (!local_known) guess_local_ranks(out);
  if (out.rank == 0) out.listen_fd = variables.number("TRIREME_LISTEN_FD", 0, 1 << 20).value_or(-1);
  out.job = "trireme " + master;
  return out;
}

LaunchEnvironment read_torchrun(const Variables& variables) {
  LaunchEnvironment out;
  out.launcher = Launcher::kTorchrun;
  const bool local_known = read_ranks(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, out);
  if (out.size == 1) return out;
  if (!variables.has("MASTER_ADDR")) {
    throw UsageError("RANK is set but MASTER_ADDR is not", "Set MASTER_ADDR and MASTER_PORT to where rank 0 is.");
  }
  out.master_address = *variables.get("MASTER_ADDR");
  const int port = variables.required("MASTER_PORT", "MASTER_ADDR", 1, 65535);
  if (variables.get_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True") {
    // torchrun's agent listens on the port itself and serves its own store there.
    for (int i = 1; i <= kAgentStorePorts; ++i) {
      out.master_ports.push_back(static_cast<uint16_t>(port + i <= 65535 ? port + i : port - i));
    }
  } else {
    out.master_ports = {static_cast<uint16_t>(port)};
  }
  // The run's own name is "none" unless somebody chose one, so the port belongs to it.
  out.job = fmt::format("torchrun {} {}:{}", variables.get_or("TORCHELASTIC_RUN_ID", ""), out.master_address, port);
  if (local_known) {
    prefer_loopback(out);
  } else {
    guess_local_ranks(out);
  }
  return out;
}

constexpr size_t kMaxSlurmNodes = 1 << 16;

[[noreturn]] void reject_slurm_list(const std::string& list, const std::string& variable) {
  throw UsageError("cannot read " + variable + "=\"" + list + "\"",
                   "Set MASTER_ADDR to the address of rank 0 instead.");
}

/// The digits at the front of `text`, which it loses; -1 where there are none.
int take_number(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// The first host of "node[01-04,07],x": node01.
std::string first_slurm_host(const std::string& list, const std::string& variable) {
  // Each bracket begins with the least of its range: "rack[1-2]n[03,07]" starts with rack1n03.
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ',';) {
    if (list[i] != '[') {
      host += list[i++];
      continue;
    }
    const size_t close = list.find(']', i);
    const size_t end = list.find_first_of("-,]", i + 1);
    if (close == std::string::npos || end == i + 1) reject_slurm_list(list, variable);
    host += list.substr(i + 1, end - i - 1);
    i = close + 1;
  }
  if (host.empty() || host.find_first_of("[]() \t") != std::string::npos) reject_slurm_list(list, variable);
  return host;
}

/// "4(x2),1" is {4, 4, 1}: the tasks on each node.
std::vector<int> expand_slurm_counts(const std::string& list, const std::string& variable) {
  std::vector<int> counts;
  std::string_view rest = list;
  while (true) {
    const int tasks = take_number(rest);
    int times = 1;
    if (rest.starts_with("(x")) {
      rest.remove_prefix(2);
      times = take_number(rest);
      if (!rest.starts_with(")")) reject_slurm_list(list, variable);
      rest.remove_prefix(1);
    }
    if (tasks < 0 || times < 0 || counts.size() + static_cast<size_t>(times) > kMaxSlurmNodes)
      reject_slurm_list(list, variable);
    counts.insert(counts.end(), static_cast<size_t>(times), tasks);
    if (rest.empty()) return counts;
    if (!rest.starts_with(",")) reject_slurm_list(list, variable);
    rest.remove_prefix(1);
  }
}

/// A shell inside sbatch or salloc has a rank too, but is no task of a step.
bool in_slurm_step(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_ID")) return false;
  const std::string step = *variables.get("SLURM_STEP_ID");
  // The numbers from 2^32 - 16 on stand for batch, extern, interactive and pending steps.
  if (step.size() == 10 && step >= "4294967280") return false;
  return variables.get_or("SLURM_STEP_NUM_TASKS", variables.get_or("SLURM_NTASKS", "1")) != "1";
}

int slurm_local_size(const Variables& variables, const LaunchEnvironment& out) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::optional<std::string> text = variables.get(name);
    if (!text) continue;
    const std::vector<int> counts = expand_slurm_counts(*text, name);
    const size_t node = static_cast<size_t>(variables.number("SLURM_NODEID", 0, 1 << 20).value_or(0));
    if (node < counts.size() && counts[node] > out.local_rank) return counts[node];
  }
  const int each = variables.number("SLURM_NTASKS_PER_NODE", 1, 1 << 20).value_or(1);
  return std::min(std::max(each, out.local_rank + 1), out.size);
}

LaunchEnvironment read_slurm(const Variables& variables) {
  constexpr int kMost = 1 << 20;
  LaunchEnvironment out;
  out.launcher = Launcher::kSlurm;
  const char* size_name = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  out.rank = variables.required("SLURM_PROCID", size_name, 0, kMost);
  out.size = variables.required(size_name, "SLURM_PROCID", 1, kMost);
  check_rank("SLURM_PROCID", out.rank, size_name, out.size);
  out.local_rank = variables.number("SLURM_LOCALID", 0, kMost).value_or(0);
  out.local_size = slurm_local_size(variables, out);

  const std::string job = variables.get_or("SLURM_JOB_ID", "0");
  const std::string step = *variables.get("SLURM_STEP_ID");
  out.job = fmt::format("slurm {}.{}", job, step);
  if (const std::optional<std::string> address = variables.get("MASTER_ADDR")) {
    out.master_address = *address;
  } else {
    const char* list = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const std::optional<std::string> nodes = variables.get(list);
    if (!nodes) {
      throw UsageError("SLURM_PROCID is set but SLURM_STEP_NODELIST is not", "Set MASTER_ADDR to where rank 0 is.");
    }
    out.master_address = first_slurm_host(*nodes, list);
  }
  if (const std::optional<int> port = variables.number("MASTER_PORT", 1, 65535)) {
    out.master_ports = {static_cast<uint16_t>(*port)};
  } else {
    // The same on all ranks, different for two jobs, and a few more in case somebody else holds one.
    constexpr uint64_t kNumPorts = kLastSlurmPort - kFirstSlurmPort + 1;
    const uint64_t number = std::strtoull(job.c_str(), nullptr, 10) * 16 + std::strtoull(step.c_str(), nullptr, 10);
    for (uint64_t i = 0; i < kSlurmPorts; ++i) {
      out.master_ports.push_back(static_cast<uint16_t>(kFirstSlurmPort + (number * kSlurmPorts + i) % kNumPorts));
    }
  }
  prefer_loopback(out);
  return out;
}

LaunchEnvironment read_mpi(const Variables& variables) {
  LaunchEnvironment out;
  out.launcher = Launcher::kMpi;
  const bool local_known = read_ranks(
      variables,
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      out);
  out.job = "mpi " + variables.get_or("PMIX_NAMESPACE", variables.get_or("OMPI_MCA_ess_base_jobid", ""));
  out.master_address = variables.get_or("MASTER_ADDR", "");
  if (!out.master_address.empty()) {
    out.master_ports = {static_cast<uint16_t>(variables.required("MASTER_PORT", "MASTER_ADDR", 1, 65535))};
    if (local_known) prefer_loopback(out);
  }
  if (!local_known) guess_local_ranks(out);
  return out;
}

/// What is the same for every launcher: token, name, and the address to listen on.
void finish(const Variables& variables, LaunchEnvironment& out) {
  out.job = variables.get_or("TRIREME_JOB", out.job);
  if (out.size == 1) return;
  if (const std::optional<std::string> token = variables.get("TRIREME_TOKEN")) {
    out.token = *token;
  } else if (const std::optional<std::string> path = variables.get("TRIREME_TOKEN_FILE")) {
    out.token = read_token_file(*path);
  }
  const bool told_later = out.launcher == Launcher::kMpi;  // the token, too, can travel over MPI
  const bool loopback = is_loopback(out.master_address);
  if (out.token.empty() && !loopback && !told_later) {
    throw UsageError(fmt::format("a job beyond loopback (rank 0 is at {}) needs a token", out.master_address),
                     "Set TRIREME_TOKEN or TRIREME_TOKEN_FILE, the same for all ranks: "
                     "export TRIREME_TOKEN=$(head -c 32 /dev/urandom | base64)");
  }
  if (const std::optional<std::string> bind = variables.get("TRIREME_BIND")) {
    if (!is_numeric(*bind)) {
      throw UsageError("TRIREME_BIND=\"" + *bind + "\" is not a numeric address", "Such as 10.0.0.5 (ip addr).");
    }
    out.bind_address = *bind;
  } else if (loopback) {
    out.bind_address = out.master_address == "localhost" ? "127.0.0.1" : out.master_address;
  }
}

LaunchEnvironment read(const Variables& variables) {
  const auto any = [&](const char* a, const char* b) { return variables.has(a) || variables.has(b); };
  LaunchEnvironment out;
  if (any("TRIREME_RANK", "TRIREME_WORLD_SIZE")) {
    out = read_trireme(variables);
  } else if (variables.has("RANK") && variables.has("WORLD_SIZE")) {
    out = read_torchrun(variables);
  } else if (in_slurm_step(variables)) {
    out = read_slurm(variables);
  } else if (any("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    out = read_mpi(variables);
  } else if (any("RANK", "WORLD_SIZE")) {
    out = read_torchrun(variables);  // half-set, and says so
  }
  finish(variables, out);
  return out;
}

}  // namespace

LaunchEnvironment read_launch_environment() {
  return read(Variables([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }));
}

LaunchEnvironment read_launch_environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  return read(Variables([&](const char* name) -> std::optional<std::string> {
    for (const auto& [key, value] : variables) {
      if (key == name) return value;
    }
    return std::nullopt;
  }));
}

}  // namespace trireme
