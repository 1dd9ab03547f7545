// A small, real data-parallel job: a multi-layer perceptron learns to tell two spirals apart.
//
// Every step has the same micro-batches whatever the number of ranks, and their gradients are added along one binary
// tree; so 1, 2, 4 and 8 ranks end with the same weights, bit for bit.
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/comm/world.h"

namespace trireme {

struct MlpJobOptions {
  int steps = 1500;
  uint64_t seed = 1;
};

struct MlpProgress {
  int step = 0;  ///< done so far
  double loss = 0;
  int64_t samples_a_step = 0;  ///< of all ranks
};

struct MlpResult {
  int steps = 0;
  int64_t num_parameters = 0;
  int64_t num_held_out = 0;
  double final_loss = 0;  ///< of the last step, over the whole batch
  double accuracy = 0;    ///< on points that no rank has trained on
  double samples_per_second = 0;
  double step_ms = 0;          ///< median
  double seconds = 0;          ///< of training
  bool equal_weights = false;  ///< all ranks ended with the same bits
  uint64_t checksum = 0;       ///< of this rank's weights
};

/// Trains with one thread on every rank of `world`; collective. `on_progress` is called after each step.
/// Throws CommError.
MlpResult run_mlp_job(World& world, const MlpJobOptions& options,
                      const std::function<void(const MlpProgress&)>& on_progress);

}  // namespace trireme
