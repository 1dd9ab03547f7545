// The measuring of `trireme bench train`: every training in turn, again and again, and PyTorch's beside ours.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/bench_train_plan.h"
#include "trireme/cli/probe.h"

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
  uint64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  ///< the parts of the state
  uint64_t buffer_bytes = 0;         ///< beside the state: partial sums of gradients, groups on their way
  uint64_t activation_bytes = 0;     ///< kept from forward to backward; 0: not counted, as on a GPU
  uint64_t pass_peak_bytes = 0;      ///< at any moment of them
  uint64_t sent_bytes_per_step = 0;  ///< in messages; 0 where workers reach each other's memory
  int64_t num_parameters = 0;
  std::string transport;
  std::vector<double> each_step_ms;  ///< of each repeat

  uint64_t device_memory_bytes = 0;  ///< the most that libtorch took of a GPU; 0: on a CPU
  /// Kernels of one step of worker 0, profiled after those that count: µs by name.
  std::vector<std::pair<std::string, double>> kernels_us;

  double ddp_units_per_second = 0;  ///< 0: not compared
  double ddp_step_ms = 0;
  std::vector<double> each_ddp_step_ms;
};

struct BenchTrainRun {
  BenchTrainPlan plan;
  std::vector<BenchTrainResult> results;  ///< one a case
  std::string torch_version;              ///< of the peer; empty: not compared
  std::vector<GpuCard> gpus;              ///< as nvidia-smi names them; empty on a CPU
  double peak_tflops = 0;                 ///< 0: not known
  std::vector<std::string> notes;

  const BenchTrainCase& main_case() const { return plan.cases[plan.main]; }
  const BenchTrainResult& main_result() const { return results[plan.main]; }
  bool on_gpu() const { return main_case().config.train.device == "cuda"; }
};

/// Blocks for minutes; shows progress on stderr. Throws Error when a training of ours fails, Interrupted on a signal.
/// What a peer cannot do becomes a note.
BenchTrainRun measure_bench_train(const BenchTrainFlags& flags, BenchTrainPlan plan);

}  // namespace trireme::cli
