// Shards the weights, gradients and optimizer state of an ordinary training loop over a torch::nn::Sequential, as
// PyTorch's fully_shard does: [Note: Sharded parameters].
//
//   FullyShard model(world.comm(), layers);                        // every rank keeps its shard of rank 0's weights
//   torch::optim::AdamW optimizer(model.parameters(), 1e-3);       // for this rank's shard
//   for (…) {
//     model.backward(loss_of(model.forward(x), y));                // all-gathers weights, reduce-scatters gradients
//     optimizer.step();                                            // updates this rank's shard
//     model.publish();                                             // weights must be gathered again
//   }
//
// Owner: the caller, who destroys it before the world. Threads: one. Blocking: the constructor, forward(), backward()
// and gather(). All ranks make the same calls in the same order. Fails with UsageError if models differ or layers have
// a parameter in common, and with CommError.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/runtime/group_reducer.h"
#include "trireme/runtime/stage_set.h"

namespace trireme {

struct FullyShardOptions {
  double bucket_mb = 4;  ///< MiB of parameters that are gathered at once; a bucket ends between layers
  bool keep = false;     ///< whether weights stay from the forward to the backward pass
};

class FullyShard {
 public:
  FullyShard(Communicator& comm, torch::nn::Sequential layers, const FullyShardOptions& options = {});
  ~FullyShard();
  FullyShard(const FullyShard&) = delete;

  /// Runs all layers, one after another.
  torch::Tensor forward(torch::Tensor x);
  /// Differentiates a scalar; afterwards, the `.grad` of parameters() are averages over ranks.
  void backward(const torch::Tensor& loss);
  /// Parameters that this rank updates: flat pieces of matrices, and whole vectors. A rank may have no piece of a
  /// matrix.
  std::vector<torch::Tensor> parameters() const;
  /// Call after parameters() have changed.
  void publish();
  /// Gathers a whole parameter by its name in the Sequential, such as "0.weight". Collective. Throws UsageError for an
  /// unknown name.
  torch::Tensor gather(const std::string& name) const;
  /// Bytes of this rank's weights and gradients, including communication buffers.
  size_t num_bytes() const {
    return held_->parameters().num_bytes() + held_->parameters().buffer_bytes() + held_->gradient_bytes() +
           held_->gradient_buffer_bytes();
  }

 private:
  GradientStore& gradients() { return *held_->stages()[0].gradients; }
  void start(int group);

  Communicator& comm_;
  std::vector<torch::nn::AnyModule> layers_;
  torch::nn::Sequential owner_;
  std::unique_ptr<StageSet> held_;
  GroupReducer reducer_;
};

}  // namespace trireme
