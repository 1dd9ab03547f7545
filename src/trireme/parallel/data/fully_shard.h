// Shards the weights, gradients and optimizer state of an ordinary training loop over a torch::nn::Sequential, as
// PyTorch's fully_shard does: [Note: Sharded parameters].
//
//   FullyShard model(world.comm(), layers);                        // every rank keeps its part of rank 0's weights
//   torch::optim::AdamW optimizer(model.parameters(), 1e-3);       // of this rank's part
//   for (…) {
//     model.backward(loss_of(model.forward(x), y));                // weights are gathered layer by layer, gradients
//     optimizer.step();                                            // scattered: those of parameters() are averages
//     model.publish();                                             // the weights have changed
//   }
//
// Owner: the caller; it must be destroyed before the world. Threads: one. Blocking: everything but parameters(), each
// call by all ranks in the same order. Fails with UsageError for tied parameters of several layers, and with CommError.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/runtime/group_reducer.h"
#include "trireme/runtime/stage_set.h"

namespace trireme {

struct FullyShardOptions {
  double bucket_mb = 4;  ///< MiB of parameters that travel together; layers are not cut
  bool keep = false;     ///< weights stay from the forward to the backward pass
};

class FullyShard {
 public:
  FullyShard(Communicator& comm, torch::nn::Sequential layers, const FullyShardOptions& options = {});
  ~FullyShard();
  FullyShard(const FullyShard&) = delete;

  /// All layers, one after another.
  torch::Tensor forward(torch::Tensor x);
  /// Differentiates a scalar. Then the `.grad` of parameters() are averages over ranks.
  void backward(const torch::Tensor& loss);
  /// What this rank updates: flat pieces of matrices, and whole vectors. Some ranks may have none of a matrix.
  std::vector<torch::Tensor> parameters() const;
  /// After parameters() have changed.
  void publish();
  /// A parameter by its name in the Sequential, such as "0.weight", whole.
  torch::Tensor gather(const std::string& name) const;
  /// Weights and gradients of this rank, with buffers.
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
