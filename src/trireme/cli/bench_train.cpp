// `trireme bench train`: see docs/bench.md for what it shows and how it measures.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_flags.h"
#include "trireme/cli/fit_report.h"
#include "trireme/config/check.h"
#include "trireme/config/stages.h"
#include "trireme/measure/estimate.h"
#include "trireme/measure/machine.h"
#include "trireme/measure/programs.h"
#include "trireme/observe/style.h"
#include "trireme/simulate/cluster.h"

namespace trireme::cli {
namespace {

struct TrainBenchFlags {
  measure::TrainOptions options;
  std::string device, compare, cluster_file;  ///< device empty: as train.device says
  bool write_cluster = false, json = false;
};

void check_flags(const TrainBenchFlags& flags) {
  if (!flags.device.empty() && !named<DeviceKind>(flags.device)) {
    throw UsageError(fmt::format("--device {}: no such device", flags.device),
                     "known: " + join(all_names<DeviceKind>(), ", "));
  }
  if (!flags.compare.empty() && flags.compare != "ddp") {
    throw UsageError(fmt::format("--compare {}: no peer is called that", flags.compare), "known: ddp (on CPUs)");
  }
}

/// What is measured where, once the config is known.
void check_device(const TrainBenchFlags& flags, const Config& config) {
  if (config.train.device != DeviceKind::kCuda) return;
  if (!flags.compare.empty()) {
    throw UsageError("--compare ddp: PyTorch on CPUs, but train.device = \"cuda\"",
                     "leave it out; bench/gpu_training.py compares on a GPU");
  }
  measure::check_gpu_code();
}

/// What --write-cluster has measured, of all workers' GPUs together; 0 where it has not.
double measured_peak_tflops(const Config& config) {
  const std::optional<Cluster> cluster = measured_cluster(/*of_cores=*/false);
  if (!cluster) return 0;
  const ParallelConfig& p = config.parallel;
  const int64_t workers =
      p.stages.empty() ? std::max<int64_t>(1, p.dp) * workers_of_replica(config) : num_workers(stage_degrees(config));
  const int64_t gpus = std::min<int64_t>(workers, cluster->devices_per_host);
  const bool in_fp8 = config.precision.matmul == MatmulType::kFp8;
  const NumberType type = in_fp8 ? NumberType::kFp8 : config.precision.compute;
  return cluster->device.peak(type) / 1e12 * static_cast<double>(gpus);
}

void write_cluster(const TrainBenchFlags& flags, const measure::TrainOptions& asked) {
  if (!asked.layouts.empty() || !flags.compare.empty()) {
    throw UsageError("--write-cluster measures trainings of its own", "leave out --layouts and --compare");
  }
  const measure::Calibration calibration = measure::calibrate(asked, measure::cluster_path(flags.cluster_file));
  fmt::print("{}", flags.json ? calibration_json(calibration).dump(2) + "\n"
                              : calibration_text(calibration, has_colour(STDOUT_FILENO)));
}

void run(TrainBenchFlags& flags, const CLI::App& command) {
  check_flags(flags);
  measure::TrainOptions& options = flags.options;
  take_config_words(command, options.config);
  std::vector<std::string>& words = options.config.words;
  if (!flags.device.empty()) words.insert(words.begin(), "--train.device=" + flags.device);
  options.compare_ddp = !flags.compare.empty();
  const measure::TrainOptions asked = options;
  options.config = with_bench_defaults(options);
  const Config config = resolve(options.config.sources());
  check_device(flags, config);
  if (flags.write_cluster) return write_cluster(flags, asked);
  const auto tokens = add_random_tokens(options);
  if (options.peak_tflops == 0 && config.train.device == DeviceKind::kCuda)
    options.peak_tflops = measured_peak_tflops(config);
  const auto announce = [&options](const measure::TrainPlan& plan, size_t num_peers) {
    const auto peers = static_cast<int64_t>(num_peers);
    const double seconds = measure::estimate_train_seconds(plan, options, num_peers);
    fmt::print(stderr, "bench train: {} of {}{}{} (less: --repeats 1, fewer --steps)\n",
               counted((static_cast<int64_t>(plan.cases.size()) + peers) * options.repeats, "training"),
               counted(options.warmup + options.steps, "step"),
               peers == 0 ? "" : fmt::format(", {} of them PyTorch's", peers * options.repeats),
               seconds > 0 ? ", " + measure::rough_duration(seconds) : "");
  };
  const measure::TrainRun measured = measure_trainings(options, plan_trainings(options), announce);
  fmt::print("{}", flags.json ? bench_train_json(measured).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                              : bench_train_text(measured, has_colour(STDOUT_FILENO)));
}

}  // namespace

void add_bench_train(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<TrainBenchFlags>();
  CLI::App* command = bench.add_subcommand(
      "train", "training, next to PyTorch: trireme bench train [FILE.toml] [--section.key=value …]");
  measure::TrainOptions& options = flags->options;
  add_config_flags(*command, options.config);
  const auto add = [command](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type)->take_last();
  };
  add("--steps", options.steps, "N", "steps that count")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  add("--warmup", options.warmup, "N", "steps before them")->check(CLI::Range(0, 1'000'000))->capture_default_str();
  add("--repeats", options.repeats, "N", "times each layout is measured, in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add("--layouts", options.layouts, "LAYOUTS", "such as \"dp=1;dp=2\", or \"dp=2;dp=2,overlap=false\"")
      ->default_str("one worker with its share of the batch, then all");
  add("--device", flags->device, "DEVICE", "cuda or cpu: short for --train.device");
  add("--compare", flags->compare, "PEER", "PyTorch, in alternation with ours: ddp, on CPUs");
  add("--peak-tflops", options.peak_tflops, "X",
      "of the GPUs used, in a matrix product: then also the share of it (what --write-cluster measured)")
      ->check(CLI::PositiveNumber);
  CLI::Option* cluster = add("--write-cluster", flags->cluster_file, "[FILE]",
                             "fits the simulator's constants to trainings of its own on this device, and keeps them")
                             ->expected(0, 1);
  command->add_flag("--json", flags->json, "one object on stdout: the main layout, and all in results");
  command->footer(
      "Takes every key of trireme train. Without a config it measures gpt2-bench, a GPT-2 of 3.3M parameters;\n"
      "on a GPU GPT-2 124M in bfloat16, 64 samples a step: deterministic, and as fast as it goes without.\n"
      "\n"
      "Examples\n"
      "  trireme bench train\n"
      "  trireme bench train --compare ddp --repeats 5\n"
      "  trireme bench train --layouts \"dp=2;dp=2,overlap=false\"\n"
      "  trireme bench train --device cuda\n"
      "  trireme bench train --write-cluster\n"
      "\n"
      "Peers need a Python with PyTorch: TRIREME_PYTHON=/path/to/python. More: docs/bench.md");
  command->callback([flags, command, cluster, &exit_code] {
    flags->write_cluster = cluster->count() > 0;
    exit_code = until_interrupted([&] { run(*flags, *command); });
  });
}

}  // namespace trireme::cli
