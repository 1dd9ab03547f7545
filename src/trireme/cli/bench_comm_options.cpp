#include "trireme/cli/bench_comm_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/probe.h"
#include "trireme/cli/written_files.h"

namespace trireme::cli {
namespace {

constexpr std::array<std::string_view, 5> kOperations = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                                         "all-to-all"};
constexpr std::array<std::string_view, 2> kDevices = {"cpu", "cuda"};
constexpr std::array<std::string_view, 4> kTransports = {"auto", "threads", "tcp", "mpi"};
constexpr std::array<std::string_view, 3> kBuffers = {"registered", "user", "both"};
constexpr std::array<std::string_view, 2> kPeers = {"mpi", "gloo"};
constexpr uint64_t kMostRanks = 1024;

/// `name` as one of `known`, blind to case and to underscores; `what` is its kind in the message.
template <typename Names>
size_t index_of(std::string_view name, const Names& known, std::string_view what) {
  std::string wanted = to_lower(trim(name));
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto found = std::find(known.begin(), known.end(), wanted);
  if (found != known.end()) return static_cast<size_t>(found - known.begin());
  const auto meant = nearest(wanted, known);
  throw UsageError(fmt::format("no {} is called \"{}\"", what, trim(name)),
                   (meant ? fmt::format("did you mean {}? ", *meant) : std::string()) + "known: " + join(known, ", "));
}

template <typename T>
void add_once(std::vector<T>& list, T value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (const uint64_t count : parse_count_list(text)) {
    if (count < 1 || count > kMostRanks) {
      throw UsageError(fmt::format("--ranks {}: a world of {} ranks cannot be measured here", text, count),
                       fmt::format("give 1 to {}, such as --ranks 2,4", kMostRanks));
    }
    add_once(ranks, static_cast<int>(count));
  }
  return ranks;
}

std::vector<uint64_t> parse_sizes(const std::string& text) {
  std::vector<uint64_t> sizes;
  for (const uint64_t bytes : parse_bytes_list(text)) {
    if (bytes == 0 || bytes % sizeof(float) != 0) {
      const uint64_t below = bytes / 4 * 4;
      throw UsageError(fmt::format("--sizes {}: {} bytes are not a whole number of floats", text, bytes),
                       below == 0 ? "nearest: 4" : fmt::format("nearest: {} or {}", below, below + 4));
    }
    add_once(sizes, bytes);
  }
  return sizes;
}

std::vector<Algorithm> parse_algorithms(const std::string& text) {
  std::vector<Algorithm> algorithms;
  for (const std::string_view part : split(text, ',')) {
    if (part == "all") {
      for (const Algorithm algorithm : all_algorithms()) add_once(algorithms, algorithm);
    } else {
      add_once(algorithms, algorithm_named(part));
    }
  }
  if (algorithms.empty()) algorithms = {Algorithm::kAuto};
  return algorithms;
}

double parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) {
    seconds = std::chrono::duration<double>(parse_duration(text)).count();
  }
  if (!(seconds > 0) || seconds > 3600) {
    throw UsageError("--seconds-per-point " + text + " is not a time from above 0 to one hour",
                     "such as 0.5, 2 or 250ms");
  }
  return seconds;
}

void check_memory(const BenchCommOptions& options) {
  const auto available = read_field("/proc/meminfo", "MemAvailable");
  if (!available) return;
  const uint64_t bytes = *std::max_element(options.sizes.begin(), options.sizes.end());
  const uint64_t ranks = static_cast<uint64_t>(*std::max_element(options.ranks.begin(), options.ranks.end()));
  const double needed = static_cast<double>(bytes) * (2.0 * static_cast<double>(ranks) + 3);
  if (needed > 0.9 * 1024 * static_cast<double>(*available)) {
    throw UsageError(
        fmt::format("{} on {} ranks would need about {} of memory, of which {} is free", format_bytes(bytes), ranks,
                    format_bytes(static_cast<uint64_t>(needed)), format_bytes(*available * 1024)),
        "give smaller --sizes or fewer --ranks");
  }
}

}  // namespace

std::string_view name_of(Operation operation) { return kOperations[static_cast<size_t>(operation)]; }

Operation operation_named(std::string_view name) {
  return static_cast<Operation>(index_of(name, kOperations, "operation"));
}

double bus_factor(Operation operation, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  if (operation == Operation::kAllReduce) return 2 * share;
  return operation == Operation::kBroadcast ? 1 : share;
}

BenchCommOptions check_flags(const BenchCommFlags& flags) {
  BenchCommOptions options;
  options.on_gpu = kDevices[index_of(flags.device, kDevices, "device")] == "cuda";
  if (options.on_gpu &&
      (flags.explain || !flags.compare.empty() || flags.transport != "auto" || flags.algorithm != "auto")) {
    throw UsageError("--device cuda measures its own backends, ipc and nccl",
                     "leave out --explain, --compare, --transport and --algorithm");
  }
  options.ranks = parse_ranks(!flags.ranks.empty() ? flags.ranks : "2");
  options.transport = kTransports[index_of(flags.transport, kTransports, "transport")];
  options.algorithms = parse_algorithms(flags.algorithm);
  options.explain = flags.explain;
  options.json = flags.json;
  options.bind = !flags.unbound;
  options.sizes = parse_sizes(!flags.sizes.empty() ? flags.sizes
                              : flags.explain      ? "4KiB, 256KiB, 16MiB"
                                                   : "4KiB:64MiB");

  const bool only_all_reduce = flags.explain || flags.write_cluster || options.algorithms[0] != Algorithm::kAuto;
  for (const std::string_view part : split(flags.operations, ',')) add_once(options.operations, operation_named(part));
  if (options.operations.empty()) {
    const size_t count = only_all_reduce ? 1 : kOperations.size();
    for (size_t i = 0; i < count; ++i) options.operations.push_back(static_cast<Operation>(i));
  }

  const size_t buffers = index_of(flags.buffers, kBuffers, "kind of buffers");
  if (buffers != 1) options.buffers.push_back(true);
  if (buffers != 0) options.buffers.push_back(false);
  for (const std::string_view part : split(flags.compare, ',')) {
    (index_of(part, kPeers, "peer") == 0 ? options.compare_mpi : options.compare_gloo) = true;
  }
  const bool sends = options.transport == "tcp" || options.transport == "mpi";
  if (sends && options.algorithms == std::vector{Algorithm::kInPlace}) {
    throw UsageError(
        fmt::format("--algorithm in-place needs shared memory, which --transport {} does not use", options.transport),
        "give --transport auto or threads, or another --algorithm");
  }
  const bool alone = *std::min_element(options.ranks.begin(), options.ranks.end()) == 1;
  if (alone && (flags.explain || flags.write_cluster)) {
    throw UsageError(fmt::format("--{} needs at least 2 ranks", flags.explain ? "explain" : "write-cluster"),
                     "such as --ranks 2,4");
  }
  if (flags.explain && !flags.compare.empty()) {
    throw UsageError("--explain shows Trireme's own algorithms side by side, without peers",
                     "leave out --explain to measure against them, or --compare to explain");
  }
  if (flags.write_cluster) options.write_cluster = cluster_path(flags.cluster_file);
  if (!flags.seconds_per_point.empty()) options.seconds_per_point = parse_seconds(flags.seconds_per_point);
  check_memory(options);
  return options;
}

}  // namespace trireme::cli
