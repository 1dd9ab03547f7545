// `trireme bench`, and its command `trireme bench comm`: see docs/bench.md for what it shows and how it measures.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/signals.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_report.h"
#include "trireme/cli/commands.h"
#include "trireme/measure/comm/crews.h"
#include "trireme/measure/comm/worker.h"
#include "trireme/measure/estimate.h"
#include "trireme/measure/machine.h"
#include "trireme/measure/probe.h"
#include "trireme/observe/style.h"

namespace trireme::cli {
namespace {

using measure::CommOptions, measure::Operation;

/// As typed.
struct CommFlags {
  std::string ranks, sizes, operations, transport = "auto", algorithm = "auto", buffers = "both", compare;
  std::string cluster_file, seconds_per_point, device = "cpu";
  bool explain = false, write_cluster = false, json = false, unbound = false;
};

constexpr size_t kMostProcesses = 8192;
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

void check_memory(const CommOptions& options) {
  const auto available = measure::read_field("/proc/meminfo", "MemAvailable");
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

bool is_on_gpu(const CommFlags& flags) { return kDevices[index_of(flags.device, kDevices, "device")] == "cuda"; }

/// Throws UsageError that names the flag, what is wrong with it and what was probably meant.
CommOptions check_flags(const CommFlags& flags) {
  CommOptions options;
  if (is_on_gpu(flags) &&
      (flags.explain || !flags.compare.empty() || flags.transport != "auto" || flags.algorithm != "auto")) {
    throw UsageError("--device cuda measures its own backends, ipc and nccl",
                     "leave out --explain, --compare, --transport and --algorithm");
  }
  options.buffers.clear();
  options.ranks = parse_ranks(!flags.ranks.empty() ? flags.ranks : "2");
  options.transport = kTransports[index_of(flags.transport, kTransports, "transport")];
  options.algorithms = parse_algorithms(flags.algorithm);
  options.bind = !flags.unbound;
  options.sizes = parse_sizes(!flags.sizes.empty() ? flags.sizes
                              : flags.explain      ? "4KiB, 256KiB, 16MiB"
                                                   : "4KiB:64MiB");

  const bool only_all_reduce = flags.explain || flags.write_cluster || options.algorithms[0] != Algorithm::kAuto;
  for (const std::string_view part : split(flags.operations, ','))
    add_once(options.operations, measure::operation_named(part));
  if (options.operations.empty()) {
    const size_t count = only_all_reduce ? 1 : measure::kOperationNames.size();
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
  if (!flags.seconds_per_point.empty()) options.seconds_per_point = parse_seconds(flags.seconds_per_point);
  check_memory(options);
  return options;
}

void run_on_gpu(const CommFlags& flags, const CommOptions& options, const std::filesystem::path& written) {
  const measure::GpuCommRun measured = measure::measure_gpu_comm(options);
  if (flags.write_cluster) {
    ClusterFile links;
    links.transports = measure::gpu_links(options, measured);
    measure::keep_in_cluster_file(written, links);
  }
  if (flags.json) return print_json(gpu_json(measured));
  fmt::print("{}", gpu_text(options, measured, has_colour(STDOUT_FILENO)));
  if (flags.write_cluster) fmt::print("links written to {}\n", written.string());
}

void announce_comm(CommOptions options) {
  if (options.compare_gloo && !measure::gloo_problem().empty()) options.compare_gloo = false;
  fmt::print(stderr, "bench comm: {}, {} (less: --operations all-reduce, fewer --sizes)\n",
             counted(static_cast<int64_t>(options.num_points()), "point"),
             measure::rough_duration(measure::estimate_comm_seconds(options)));
}

void run(const CommFlags& flags) {
  const CommOptions options = check_flags(flags);
  std::filesystem::path written;
  if (flags.write_cluster) written = measure::cluster_path(flags.cluster_file);
  if (options.transport == "mpi") measure::check_mpi_transport();
  if (options.compare_mpi) measure::check_mpi_peer();
  if (is_on_gpu(flags)) return run_on_gpu(flags, options, written);
  const HeldSignals signals({SIGINT, SIGTERM, SIGPIPE});
  Guardian guardian(kMostProcesses);
  const bool colour = has_colour(STDOUT_FILENO);

  Json json;
  measure::Crew::Variables variables;
  if (flags.write_cluster) {
    const measure::Fit fit = measure::fit_cluster(options, written, guardian);
    // Our ranks choose by the new constants, too.
    variables.emplace_back("TRIREME_CLUSTER", std::filesystem::absolute(written).string());
    if (!flags.json) fmt::print("{}", fit_text(fit, colour));
    json["cluster"] = fit_json(fit);
  }
  std::fflush(stdout);
  const ClusterFile cluster =
      ClusterFile::load_or_defaults(flags.write_cluster ? written : ClusterFile::default_path());

  measure::CommRun measured;
  std::string text;
  if (flags.explain) {
    const auto explained = measure::explain(options, cluster, guardian, variables, measured);
    text = explanation_text(explained, colour);
    json["explain"] = explanation_json(explained);
  } else {
    announce_comm(options);
    measured = measure::measure_table(options, cluster, guardian, variables);
    text = table_text(measured, cluster, colour);
  }
  if (flags.json) {
    json["results"] = results_json(measured);
    json["machine"] = machine_json(measured);
    json["notes"] = measured.notes;
    print_json(json);
    return;
  }
  fmt::print("{}", text);
}

}  // namespace

void add_bench_comm(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<CommFlags>();
  auto worker = std::make_shared<bool>(false);
  CLI::App* command = bench.add_subcommand("comm", "collectives, next to the formulas, the hardware, MPI and Gloo");
  const auto add = [command](const char* name, std::string& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  add("--ranks", flags->ranks, "N,…", "worlds to measure")->default_str("2");
  add("--sizes", flags->sizes, "SIZES", "bytes of the whole vector: a list, or a range in steps of 4")
      ->default_str("4KiB:64MiB");
  add("--operations", flags->operations, "NAMES", "all-reduce, reduce-scatter, all-gather, broadcast, all-to-all")
      ->default_str("all of them");
  add("--transport", flags->transport, "NAME", "auto (shared memory), threads, tcp or mpi")->capture_default_str();
  add("--algorithm", flags->algorithm, "NAMES", "of the all-reduce; all: every one that is possible")
      ->capture_default_str();
  add("--buffers", flags->buffers, "KIND", "registered (from the communicator), user (yours) or both")
      ->capture_default_str();
  add("--device", flags->device, "DEVICE", "cuda: operands in GPU memory, between processes and cards")
      ->capture_default_str();
  add("--compare", flags->compare, "PEERS", "mpi, gloo: measured in alternation with ours");
  command->add_flag("--explain", flags->explain, "every all-reduce algorithm: what it sends, predicted, measured, why");
  CLI::Option* cluster =
      add("--write-cluster", flags->cluster_file, "[FILE]", "fits the costs of this machine first, and keeps them");
  cluster->expected(0, 1);
  command->add_flag("--json", flags->json, "one object on stdout: results, machine");
  add("--seconds-per-point", flags->seconds_per_point, "S", "time for each size of each contestant")
      ->default_str("20 rounds above 1 MB, else 500");
  command->add_flag("--unbound", flags->unbound,
                    "leaves ranks to the scheduler; else a core each where there are enough");
  command->add_flag("--worker", *worker, "")->group("");
  command->footer(
      "Examples\n"
      "  trireme bench comm --operations all-reduce\n"
      "  trireme bench comm --ranks 2,4 --sizes 4KiB,1MiB,64MiB --compare mpi,gloo\n"
      "  trireme bench comm --explain --ranks 2,4,8 --sizes 16MiB\n"
      "  trireme bench comm --device cuda --ranks 2,4         on GPU memory\n"
      "  trireme bench comm --write-cluster --ranks 2,4       predictions and the tuner then know this machine\n"
      "\n"
      "Gloo needs a Python with PyTorch: TRIREME_PYTHON=/path/to/python. More: docs/bench.md");
  command->callback([flags, worker, cluster, &exit_code] {
    if (*worker) {
      measure::run_comm_worker(flags->transport == "threads" ? std::stoi(flags->ranks) : 0, !flags->unbound, std::cin,
                               std::cout);
      return;
    }
    flags->write_cluster = cluster->count() > 0;
    exit_code = until_interrupted([&flags] { run(*flags); });
  });
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "measures, next to what theory says");
  add_bench_comm(*bench, exit_code);
  add_bench_tensor(*bench);
  add_bench_train(*bench, exit_code);
  bench->require_subcommand(0, 1);
  bench->footer(
      "Examples\n"
      "  trireme bench comm                     collectives on two local ranks\n"
      "  trireme bench comm --compare mpi       the same next to Open MPI\n"
      "  trireme bench tensor                   mesh tensors next to plain ones\n"
      "  trireme bench train                    training on one and on two workers");
  bench->callback([bench] {
    if (bench->get_subcommands().empty()) throw CLI::CallForHelp();
  });
}

}  // namespace trireme::cli
