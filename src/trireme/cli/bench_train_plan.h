// What `trireme bench train` will measure: from flags and a config to a list of trainings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/cli/config_arguments.h"
#include "trireme/config/config.h"

namespace trireme::cli {

struct BenchTrainFlags {
  ConfigArguments config;
  int64_t steps = 20, warmup = 5;
  int repeats = 3;
  std::string device;      ///< "cpu", "cuda"; empty: as train.device says
  double peak_tflops = 0;  ///< of the GPUs used, in a matrix product; 0: not known
  std::string compare;     ///< "ddp" (on CPUs), or empty
  std::string layouts;     ///< "dp=1;dp=2"; empty: one worker with its share of the batch, then all
  /// Names, and words that are added to the config: instead of layouts.
  std::vector<std::pair<std::string, std::vector<std::string>>> cases;
  std::optional<std::string> write_cluster;  ///< a file; empty: the one that every command reads
  bool json = false;
};

/// One training that is measured, `repeats` times.
struct BenchTrainCase {
  std::string name;           ///< "dp=2", "dp=1, batch 8"
  ConfigArguments arguments;  ///< whole, with what the benchmark adds
  Config config;              ///< what they come to
  int num_workers = 1;
  int64_t samples_per_step = 0;
};

struct BenchTrainPlan {
  std::vector<BenchTrainCase> cases;
  std::vector<size_t> layouts;  ///< cases, in the order of the table
  size_t main = 0;              ///< the case that speaks for all; one of the layouts
};

/// `flags.config` names a model: with_bench_defaults(). Every case has been checked: it can run. Throws UsageError.
BenchTrainPlan plan_bench_train(const BenchTrainFlags& flags);

}  // namespace trireme::cli
