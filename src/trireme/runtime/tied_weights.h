// Weights with two uses, as a program's instructions move them: gradients to the owner, the weight back to its copy.
//
// [Note: Tied weights]
// A weight with two uses, such as the embedding of a language model that is also its output layer, belongs to the stage
// of its first use, the owner. Each use has gradients of its own, summed apart over micro-batches and replicas; then
// the owner adds them, in the order of the uses. Where a use is on another rank, that rank has a copy: it sends the sum
// of its gradients, and gets the weight back after the update (or before the step, where the update is the caller's).
// So the sum is the same wherever the model is cut, and only the owner needs optimizer state. Where replicas shard
// weights
// ([Note: Sharded parameters]), each sends and gets its own shard; where stages differ in shape, a route reshards on
// the way.
//
// Owner: whoever makes the executor. Threads: one. Blocking: each call with the communicator's timeout. Fails with
// CommError.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/runtime/mesh_messages.h"

namespace trireme {

class TiedWeights {
 public:
  /// The end where the weight is updated.
  struct Owner {
    std::function<void(const torch::Tensor& sum)> add_gradient;
    std::function<torch::Tensor()> weight;
  };
  /// The end that computes with it, too.
  struct Use {
    std::function<torch::Tensor()> gradient;
    std::function<void(const torch::Tensor& weight)> take_weight;
  };
  struct Tie {
    int owner_rank = 0, use_rank = 0;                                               ///< along the pipeline
    std::optional<Owner> owner = {};                                                ///< on the owner's rank
    std::optional<Use> use = {};                                                    ///< on the rank of the use
    std::shared_ptr<ParcelRoute> gradient_route = nullptr, weight_route = nullptr;  ///< null: alike stages
  };

  /// Numbered as in the programs. `pipeline`: null where all ends are on one rank; `routes`: for ties with routes.
  TiedWeights(std::vector<Tie> ties, Communicator* pipeline, MeshMessages* routes, torch::Device device)
      : ties_(std::move(ties)), pipeline_(pipeline), routes_(routes), device_(device) {}

  void send_gradient(int number) const;
  void add_gradient(int number) const;
  void send_weight(int number) const;
  void take_weight(int number) const;
  /// Outside of a program: owners' weights to all copies. Collective over the ranks of the model.
  void refresh(int own_rank) const;

 private:
  const Tie& tie(int number) const { return ties_[static_cast<size_t>(number)]; }
  void send(const torch::Tensor& tensor, int to, const ParcelRoute* route, int message) const;
  torch::Tensor receive(int from, const ParcelRoute* route, int message) const;

  const std::vector<Tie> ties_;
  Communicator* const pipeline_;
  MeshMessages* const routes_;
  const torch::Device device_;
};

}  // namespace trireme
