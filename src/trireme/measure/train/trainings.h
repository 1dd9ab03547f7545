// The measuring of `trireme bench train`: every training in turn, again and again, and PyTorch's next to ours.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trireme/measure/probe.h"
#include "trireme/measure/train/cases.h"

namespace trireme::measure {

/// Medians over the repeats.
struct TrainResult {
  std::string unit = "tokens";  ///< or "samples"
  double units_per_second = 0;
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> parts_ms;
  double loss = 0;           ///< of the last step
  bool loss_repeats = true;  ///< every repeat ended with the same bits
  uint64_t peak_memory_bytes = 0;
  uint64_t device_memory_bytes = 0;  ///< the most that libtorch took of a GPU; 0: on a CPU
  std::vector<double> each_step_ms;  ///< of each repeat
  /// Kernels of one step of worker 0, profiled after those that count: µs by name.
  std::vector<std::pair<std::string, double>> kernels_us;
  nlohmann::json said = nlohmann::json::object();  ///< all that the last repeat's first worker printed: parameters,
                                                   ///< transport, counts of bytes

  double ddp_units_per_second = 0;  ///< 0: not compared
  double ddp_step_ms = 0;
  std::vector<double> each_ddp_step_ms;
};

struct TrainRun {
  TrainPlan plan;
  std::vector<TrainResult> results;  ///< one for each case
  std::string torch_version;         ///< of the peer; empty: not compared
  std::vector<GpuCard> gpus;         ///< as nvidia-smi names them; empty on a CPU
  double peak_tflops = 0;            ///< 0: not known
  std::vector<std::string> notes;

  const TrainCase& main_case() const { return plan.cases[plan.main]; }
  const TrainResult& main_result() const { return results[plan.main]; }
  bool on_gpu() const { return main_case().config.train.device == DeviceKind::kCuda; }
};

/// Blocks for minutes; shows progress on stderr. `announce`, if there is one, is told beforehand how many of the
/// trainings are PyTorch's. Throws Error when a training of ours fails, Interrupted on a signal. What a peer cannot do
/// becomes a note.
TrainRun measure_trainings(const TrainOptions& options, TrainPlan plan,
                           const std::function<void(const TrainPlan& plan, size_t num_peers)>& announce = {});

/// The result of a case from what its repeats printed, and from PyTorch's steps where it was compared. Throws
/// nlohmann's errors for output without the fields that every training has.
TrainResult summarise(const TrainCase& measured, std::vector<nlohmann::json> said, std::vector<double> ddp_step_ms);

/// One training: `trireme-tensor train --bench` on the workers of the case. Blocks until it ends, and returns what its
/// first worker prints. Throws Error when it fails, Interrupted when a signal stopped it.
nlohmann::json run_ours(const TrainCase& measured, int64_t warmup);

}  // namespace trireme::measure
