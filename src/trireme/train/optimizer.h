// Optimizers on flat buffers, and their learning-rate schedule.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/optimizer/rule.h"
#include "trireme/runtime/parameter_store.h"

namespace trireme {

/// The update rule that the config asks for, without the learning-rate schedule.
UpdateRule update_rule(const OptimizerConfig& config);

/// Learning rate of step `step` (from 0) of `num_steps`: warm-up, then the schedule.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t num_steps, int64_t dp);

/// Updates master weights in one pass. Owner: an update policy. Threads: one at a time. Its state is as large as the
/// weights for SGD with momentum, twice as large for Adam and AdamW.
class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, ParameterStore& parameters);

  /// `gradient(i)` is the float32 gradient of shard i of the parameters, undefined to leave the shard unchanged; it is
  /// scaled by `factor`. `step`: updates before this one.
  void update(const std::function<torch::Tensor(size_t shard)>& gradient, double factor, double lr, int64_t step);

  struct ShardState {
    float *first = nullptr, *second = nullptr;
  };
  /// Pointers to the state of a shard; null where the rule has none.
  ShardState state_of(size_t shard) const;

  /// One kind of optimizer state, such as "adam.first", as a view of each shard, for checkpoints.
  struct Kind {
    std::string name;
    std::function<torch::Tensor(size_t shard)> of_shard;
  };
  std::vector<Kind> state() const;
  size_t num_bytes() const;

 private:
  const OptimizerConfig config_;
  const UpdateRule rule_;
  ParameterStore& parameters_;
  torch::Tensor first_, second_;  ///< state of all shards, one after another; undefined if not needed
};

}  // namespace trireme
