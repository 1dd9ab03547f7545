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
  /// Show a text to people; it has no newline at its end. Worker 0 says what it trains, and draws its progress on
  /// stderr meanwhile; every worker may warn, from any thread. Empty: silent.
  std::function<void(const std::string&text)> says, warns;
  bool keeps_run_folder = true;  ///< off: nothing is written but `record`, for benchmarks and comparisons
  int64_t stop_after = 0;        ///< stops as if asked to after this many steps of this process; 0: never
  int64_t warmup_steps = 0;      ///< not counted in speed
  bool measures_memory = false;  ///< after the last step: what its passes hold (RunResult::passes)
  int64_t profiled_steps = 0;    ///< done after the last on a GPU, to see where its time goes; nothing is kept of them
  std::filesystem::path record;  ///< a folder for loss, gradients and weights of every step; empty: none
  PredictedStep predicted;       ///< stands beside what was measured
};

struct RunResult {
  int64_t steps = 0;
  double final_loss = 0;  ///< of the last step, on its training batch
  Evaluation held_out;
  bool has_target = false, reached_target = false;
  bool stopped = false;        ///< by a signal; the state was saved
  bool nothing_to_do = false;  ///< the run that was resumed had done all its steps
  double seconds = 0;
  double step_ms = 0;  ///< median
  double units_per_second = 0;
  std::string unit;                                      ///< "tokens" or "samples"
  std::vector<std::pair<std::string, double>> parts_ms;  ///< means of the parts of a step, this worker's
  std::vector<KernelTime> kernels;                       ///< a step's, where RunOptions::profiled_steps asked for it
  std::vector<int64_t> worker_memory_bytes;              ///< the most that each worker ever held
  int64_t peak_memory_bytes = 0;                         ///< of the fullest of them
  uint64_t device_memory_bytes = 0;                      ///< at the most, of a GPU
  StateParts state;
  PassMemory passes;  ///< zeros where nobody asked
  uint64_t reduced_bytes_per_step = 0;
  uint64_t sent_bytes_per_step = 0;      ///< in messages between replicas; 0 where they reach each other's memory
  uint64_t gathered_bytes_per_step = 0;  ///< of sharded weights
  int64_t num_parameters = 0;
  int64_t sums_asked = 0, sums_right = 0;
  int64_t steps_skipped = 0;
  std::string layout;
  std::filesystem::path run_dir;
};

/// "81.5 ms a step (+8.4 %), 166 MiB a worker (+0.8 %)": how far the prediction was off in brackets.
std::string predicted_text(const PredictedStep& predicted, const RunResult& measured);

/// Collective; blocks until the training ends. SIGINT and SIGTERM to any worker save and stop all of them.
RunResult run_training(World& world, const Config& config, const RunOptions& options);

}  // namespace trireme
