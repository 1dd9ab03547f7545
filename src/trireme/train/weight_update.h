// The optimizer where the master weights are: on the host, maybe for gradients of a GPU; on a GPU in device_update.h.
//
// Owner: update policies. Threads: one. Blocking: fetch() and squares(), until a GPU's gradients are there; they fail
// as synchronize() does, squares() as the communicator.
#pragma once

#include <memory>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/train/model_part.h"
#include "trireme/train/optimizer.h"
#include "trireme/train/rank_groups.h"

namespace trireme {

class WeightUpdate {
 public:
  /// For the gradients in slot 0 of `part`, which must outlive it.
  WeightUpdate(const Config& config, ModelPart& part);
  virtual ~WeightUpdate() = default;
  WeightUpdate(const WeightUpdate&) = delete;

  /// Brings the gradients, as started for the device so far, to where the optimizer reads them.
  void fetch();
  /// Σ g² of each entry of the parameters, over fixed blocks: no cut and no device changes a bit. Collective over
  /// the shard group.
  std::vector<double> squares(const RankGroups& groups);
  /// Updates with the gradients times `factor`, whatever they are. `update`: the number of updates before this one.
  virtual void apply(int64_t update, double lr, double factor);
  Optimizer& optimizer() { return optimizer_; }

 protected:
  /// Of each block of each shard's gradient, shard by shard.
  virtual std::vector<double> block_squares();

  ModelPart& part_;
  Optimizer optimizer_;

 private:
  torch::Tensor gradient(size_t shard) const;
  /// Of a GPU's gradients, where master weights are in the host's memory: pinned, in float32, which the GPU makes.
  std::vector<torch::Tensor> copies_;
};

}  // namespace trireme
