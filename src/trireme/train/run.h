// `trireme train` on one worker: from a config to a run folder with checkpoints, events and a report.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/config/training.h"
#include "trireme/train/trainer.h"

namespace trireme {

struct RunOptions {
  /// Show a text (without a final newline) to the user. Only worker 0 calls `says`, and draws its progress on stderr;
  /// any worker may call `warns`, from any thread. Empty: silent.
  std::function<void(const std::string&text)> says, warns;
  bool keeps_run_folder = true;  ///< off: writes only `record`, for benchmarks and comparisons
  int64_t stop_after = 0;        ///< stops as if asked to after this many steps of this process; 0: never
  int64_t warmup_steps = 0;      ///< excluded from the measured speed
  bool measures_memory = false;  ///< after the last step, measures the memory of its passes (RunResult::passes)
  int64_t profiled_steps = 0;    ///< extra steps after the last, profiled on a GPU; their updates are not saved
  std::filesystem::path record;  ///< folder for loss, gradients and weights of every step; empty: none
  PredictedStep predicted;       ///< shown next to the measured values
};

struct RunResult {
  int64_t steps = 0;
  double final_loss = 0;  ///< training loss of the last step
  Evaluation held_out;
  bool has_target = false, reached_target = false;
  bool stopped = false;        ///< stopped by a signal; the state was saved
  bool nothing_to_do = false;  ///< the resumed run had already done all its steps
  double seconds = 0;
  double step_ms = 0;  ///< median
  double units_per_second = 0;
  std::string unit;                                      ///< "tokens" or "samples"
  std::vector<std::pair<std::string, double>> parts_ms;  ///< mean time of each part of a step, on this worker
  std::vector<KernelTime> kernels;           ///< GPU work of one step, if RunOptions::profiled_steps asked for it
  std::vector<int64_t> worker_memory_bytes;  ///< peak memory of each worker
  int64_t peak_memory_bytes = 0;             ///< the largest of them
  uint64_t device_memory_bytes = 0;          ///< peak GPU memory
  StateParts state;
  PassMemory passes;  ///< zeros unless RunOptions::measures_memory
  uint64_t reduced_bytes_per_step = 0;
  uint64_t sent_bytes_per_step = 0;  ///< sent in messages between replicas; 0 when replicas read each other's memory
  uint64_t gathered_bytes_per_step = 0;  ///< sent to replicas, of sharded weights
  int64_t num_parameters = 0;
  int64_t sums_asked = 0, sums_right = 0;
  int64_t steps_skipped = 0;
  std::string layout;
  std::filesystem::path run_dir;
};

/// "81.5 ms a step (+8.4 %), 166 MiB a worker (+0.8 %)": the prediction, with its error in parentheses.
std::string predicted_text(const PredictedStep& predicted, const RunResult& measured);

/// Trains from start to end. Collective; blocks until training ends. SIGINT or SIGTERM to any worker makes all of them
/// save and stop.
RunResult run_training(World& world, const Config& config, const RunOptions& options);

}  // namespace trireme
