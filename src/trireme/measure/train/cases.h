// What `trireme bench train` measures: from a config and layouts to a list of trainings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/arguments.h"
#include "trireme/measure/train/tokens.h"

namespace trireme::measure {

struct TrainOptions {
  ConfigArguments config;
  int64_t steps = 20, warmup = 5;
  int repeats = 3;
  double peak_tflops = 0;    ///< of the GPUs used, in a matrix product; 0: not known
  bool compare_ddp = false;  ///< with PyTorch, on CPUs
  std::string layouts;       ///< "dp=1;dp=2"; empty: one worker with its part of the batch, then all
  std::vector<std::pair<std::string, Config>> cases;  ///< by name, instead of config and layouts
};

/// One training that is measured, `repeats` times.
struct TrainCase {
  std::string name;  ///< "dp=2", "dp=1, batch 8"
  Config config;     ///< with what the benchmark adds
  int num_workers = 1;
  int64_t samples_per_step = 0;
};

struct TrainPlan {
  std::vector<TrainCase> cases;
  std::vector<size_t> layouts;  ///< cases, in the order of the table
  size_t main = 0;              ///< the case that speaks for all; one of the layouts
};

/// `options.config` names a model, as with_bench_defaults() has it. Every case has been checked: it can run. Throws
/// UsageError.
TrainPlan plan_trainings(const TrainOptions& options);

/// The options' arguments with a model in them. CPU: gpt2-bench. GPU: GPT-2 124M as it is usually timed (a vocabulary
/// of 50,304, 64 samples per step in one micro-batch per worker, bfloat16, clipping), and one worker. Whatever was
/// asked for stays. Throws UsageError as resolve() does.
ConfigArguments with_bench_defaults(const TrainOptions& options);

/// Tokens that a file of random ones should have for this training; 0 where the config has data of its own, or where
/// generated text does, as on a CPU.
int64_t num_random_tokens(const Config& config, int64_t steps);

/// Such a file, which the options' arguments then name; null where none is needed. The trainings need it to live.
std::unique_ptr<RandomTokenFile> add_random_tokens(TrainOptions& options);

}  // namespace trireme::measure
