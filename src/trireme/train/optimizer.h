// Optimizers on flat buffers, and the schedule of their learning rate.
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

/// What the config asks for, without its schedule.
UpdateRule update_rule(const OptimizerConfig& config);

/// Of step `step` (from 0) of `num_steps`: warm-up, then the schedule.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t num_steps, int64_t dp);

/// Updates master weights in one pass. Owner: the trainer. Threads: one at a time. The state is as large as the
/// weights, once for SGD with momentum, twice for Adam and AdamW.
class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, ParameterStore& parameters);

  /// `gradient(i)` is the float32 gradient of shard i of the parameters, undefined where that is to stay as it is;
  /// `factor` is applied to it. `step`: updates before this one.
  void update(const std::function<torch::Tensor(size_t shard)>& gradient, double factor, double lr, int64_t step);

  struct ShardState {
    float *first = nullptr, *second = nullptr;
  };
  /// Where the state of a shard lies; null where there is none.
  ShardState state_of(size_t shard) const;

  /// One kind of state, such as "adam.first", of every shard: views, for checkpoints.
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
  torch::Tensor first_, second_;  ///< of the shards, one after another; undefined where not needed
};

}  // namespace trireme
