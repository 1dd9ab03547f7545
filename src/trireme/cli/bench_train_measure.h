// The measuring of `trireme bench train`: every training in turn, again and again, and PyTorch's beside ours.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/bench_train_plan.h"

namespace trireme::cli {

/// Medians over the repeats.
struct BenchTrainResult {
  std::string unit = "tokens";  ///< or "samples"
  double units_per_second = 0;
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> parts_ms;
  double loss = 0;           ///< of the last step
  bool loss_repeats = true;  ///< every repeat ended with the same bits
  uint64_t peak_memory_bytes = 0, state_bytes = 0, reduced_bytes_per_step = 0;
  int64_t num_parameters = 0;
  std::string transport;
  std::vector<double> each_step_ms;  ///< of each repeat

  double ddp_units_per_second = 0;  ///< 0: not compared
  double ddp_step_ms = 0;
  std::vector<double> each_ddp_step_ms;
};

struct BenchTrainRun {
  BenchTrainPlan plan;
  std::vector<BenchTrainResult> results;  ///< one a case
  std::string torch_version;              ///< of the peer; empty: not compared
  std::vector<std::string> notes;

  const BenchTrainCase& main_case() const { return plan.cases[plan.layouts.back()]; }
  const BenchTrainResult& main_result() const { return results[plan.layouts.back()]; }
};

/// Blocks for minutes; shows progress on stderr. Throws Error when a training of ours fails, Interrupted on a signal.
/// What a peer cannot do becomes a note.
BenchTrainRun measure_bench_train(const BenchTrainFlags& flags, BenchTrainPlan plan);

}  // namespace trireme::cli
