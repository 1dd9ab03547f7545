#include "trireme/cli/bench_train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/bench_comm_crew.h"
#include "trireme/cli/bench_train_calibrate.h"
#include "trireme/cli/bench_train_defaults.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/cli/probe.h"
#include "trireme/cli/written_files.h"
#include "trireme/config/resolve.h"
#include "trireme/config/stages.h"
#include "trireme/observe/style.h"
#include "trireme/simulate/cluster.h"

namespace trireme::cli {
namespace {

void check_flags(const BenchTrainFlags& flags) {
  if (!flags.device.empty() && flags.device != "cpu" && flags.device != "cuda") {
    throw UsageError(fmt::format("--device {}: no such device", flags.device), "known: cpu, cuda");
  }
  if (!flags.compare.empty() && flags.compare != "ddp" && flags.compare != "torch") {
    throw UsageError(fmt::format("--compare {}: no peer is called that", flags.compare),
                     "known: ddp (on CPUs), torch (on a GPU)");
  }
  if (flags.plot.empty()) return;
  if (!flags.plot.ends_with(".svg")) throw UsageError("--plot " + flags.plot + ": the name must end in .svg");
  check_writable("--plot", flags.plot);
}

/// What is measured where, once the config is known.
void check_device(const BenchTrainFlags& flags, const Config& config) {
  const bool on_gpu = config.train.device == "cuda";
  if (!on_gpu && flags.compare == "torch") {
    throw UsageError("--compare torch: PyTorch on one GPU, but train.device = \"cpu\"",
                     "--device cuda, or --compare ddp on CPUs");
  }
  if (on_gpu && flags.compare == "ddp") {
    throw UsageError("--compare ddp: PyTorch on CPUs, but train.device = \"cuda\"", "--compare torch");
  }
  if (on_gpu && gpu_library().empty()) throw UsageError(kNoGpuCode, kGetGpuCode);
}

/// What --write-cluster has measured, of all workers' GPUs together; 0 where it has not.
double measured_peak_tflops(const Config& config) {
  const std::optional<Cluster> cluster = measured_cluster(/*of_cores=*/false);
  if (!cluster) return 0;
  const ParallelConfig& p = config.parallel;
  const int64_t workers =
      p.stages.empty() ? std::max<int64_t>(1, p.dp) * p.tp * p.pp : num_workers(stage_degrees(config));
  const int64_t gpus = std::min<int64_t>(workers, cluster->devices_per_host);
  const bool in_fp8 = config.precision.matmul == "fp8";
  const NumberType type = in_fp8 ? NumberType::kFp8 : number_type(config.precision.compute);
  return cluster->device.peak(type) / 1e12 * static_cast<double>(gpus);
}

void write_cluster(const BenchTrainFlags& flags) {
  if (!flags.layouts.empty() || !flags.compare.empty() || !flags.plot.empty() || flags.precision_table) {
    throw UsageError("--write-cluster measures trainings of its own",
                     "leave out --layouts, --compare, --plot and --precision-table");
  }
  const Calibration calibration = calibrate(flags, cluster_path(*flags.write_cluster));
  if (flags.json) {
    fmt::print("{}\n", calibration_json(calibration).dump(2));
  } else {
    fmt::print("{}", calibration_text(calibration, has_colour(STDOUT_FILENO)));
  }
}

void run(BenchTrainFlags& flags, const CLI::App& command) {
  check_flags(flags);
  flags.config.take(command);
  if (!flags.device.empty()) flags.config.words.insert(flags.config.words.begin(), "--train.device=" + flags.device);
  const BenchTrainFlags asked = flags;
  flags.config = with_bench_defaults(flags);
  const Config config = resolve(flags.config.sources());
  check_device(flags, config);
  if (flags.write_cluster) return write_cluster(asked);
  const auto tokens = add_random_tokens(flags);
  if (flags.peak_tflops == 0 && config.train.device == "cuda") flags.peak_tflops = measured_peak_tflops(config);
  const BenchTrainRun measured = measure_bench_train(flags, plan_bench_train(flags));
  if (!flags.plot.empty()) write_bench_train_plot(flags.plot, measured);
  if (flags.json) {
    fmt::print("{}\n", bench_train_json(measured).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{}", bench_train_text(measured, has_colour(STDOUT_FILENO)));
  if (!flags.plot.empty()) fmt::print("chart written to {}\n", flags.plot);
}

}  // namespace

void add_bench_train(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchTrainFlags>();
  CLI::App* command = bench.add_subcommand(
      "train", "training, beside PyTorch: trireme bench train [FILE.toml] [--section.key=value …]");
  flags->config.add_to(*command);
  const auto add = [command](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type)->take_last();
  };
  add("--steps", flags->steps, "N", "steps that count")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  add("--warmup", flags->warmup, "N", "steps before them")->check(CLI::Range(0, 1'000'000))->capture_default_str();
  add("--repeats", flags->repeats, "N", "times each layout is measured, in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add("--layouts", flags->layouts, "LAYOUTS", "such as \"dp=1;dp=2\", or \"dp=2;dp=2,overlap=false\"")
      ->default_str("one worker with its share of the batch, then all");
  add("--device", flags->device, "DEVICE", "cuda or cpu: short for --train.device");
  add("--compare", flags->compare, "PEER", "PyTorch, in alternation with ours: ddp on CPUs, torch on one GPU");
  add("--peak-tflops", flags->peak_tflops, "X",
      "of the GPUs used, in a matrix product: then also the share of it (what --write-cluster measured)")
      ->check(CLI::PositiveNumber);
  command->add_flag(
      "--precision-table", flags->precision_table,
      "float32 beside bfloat16: memory, bytes reduced, speed (on CPUs also where precision.compute is another)");
  const auto cluster_file = std::make_shared<std::string>();
  CLI::Option* cluster = add("--write-cluster", *cluster_file, "[FILE]",
                             "fits the simulator's constants to trainings of its own on this device, and keeps them")
                             ->expected(0, 1);
  add("--plot", flags->plot, "FILE.svg", "a chart of the speed by workers");
  command->add_flag("--json", flags->json, "one object on stdout: the main layout, and all in results");
  command->footer(
      "Takes every key of trireme train. Without a config it measures gpt2-bench, a GPT-2 of 3.3M parameters;\n"
      "on a GPU GPT-2 124M in bfloat16, 64 samples a step: deterministic, and as fast as it goes without.\n"
      "\n"
      "Examples\n"
      "  trireme bench train\n"
      "  trireme bench train --compare ddp --repeats 5 --plot train.svg\n"
      "  trireme bench train --layouts \"dp=2;dp=2,overlap=false\"\n"
      "  trireme bench train --precision-table\n"
      "  trireme bench train --device cuda --compare torch\n"
      "  trireme bench train --write-cluster\n"
      "\n"
      "Peers need a Python with PyTorch: TRIREME_PYTHON=/path/to/python. More: docs/bench.md");
  command->callback([flags, command, cluster, cluster_file, &exit_code] {
    if (cluster->count() > 0) flags->write_cluster = *cluster_file;
    try {
      run(*flags, *command);
    } catch (const Interrupted& interrupted) {
      fmt::print(stderr, "\nerror: stopped by SIG{}\n", sigabbrev_np(interrupted.signal));
      exit_code = 128 + interrupted.signal;
    }
  });
}

}  // namespace trireme::cli
