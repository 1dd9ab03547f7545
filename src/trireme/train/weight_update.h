// The optimizer where the master weights are: on the host, even if gradients are on a GPU; device_update.h is for GPUs.
//
// Owner: update policies. Threads: one. Blocking: fetch() and squares() wait for a GPU's gradients. Failure: as
// synchronize(); squares() also as the communicator.
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
  /// Updates from the gradients in slot 0 of `part`, which must outlive it.
  WeightUpdate(const Config& config, ModelPart& part);
  virtual ~WeightUpdate() = default;
  WeightUpdate(const WeightUpdate&) = delete;

  /// Copies the gradients, as enqueued on the device so far, to where the optimizer reads them.
  void fetch();
  /// Σ g² of each entry of the parameters, in fixed blocks, so no sharding and no device changes a bit. Collective over
  /// the shard group.
  std::vector<double> squares(const RankGroups& groups);
  /// Applies the optimizer to gradients scaled by `factor`, without any check. `update`: updates before this one.
  virtual void apply(int64_t update, double lr, double factor);
  Optimizer& optimizer() { return optimizer_; }

 protected:
  /// Σ g² of each block of each shard's gradient, shard by shard.
  virtual std::vector<double> block_squares();

  ModelPart& part_;
  Optimizer optimizer_;

 private:
  torch::Tensor gradient(size_t shard) const;
  /// Pinned float32 copies of a GPU's gradients, if the master weights are in host memory; the GPU converts them.
  std::vector<torch::Tensor> copies_;
};

}  // namespace trireme
