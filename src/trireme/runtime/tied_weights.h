// Weights with two uses, and the program's instructions that move them: gradients go to the owner, the updated weight
// goes back to its copy.
//
// [Note: Tied weights]
// A weight with two uses, such as the embedding of a language model that is also its output layer, belongs to the stage
// of its first use, the owner. Each use has its own gradients, summed separately over micro-batches and replicas; then
// the owner adds the sums, in the order of the uses. A use on another rank has a copy of the weight: that rank sends
// the sum of its gradients, and receives the weight after the update (or before the step, if the caller updates). So
// the sum is the same wherever the model is cut, and only the owner needs optimizer state. If replicas shard weights
// ([Note: Sharded parameters]), each sends and receives its own shard; if stages differ in shape, a route reshards on
// the way.
//
// Owner: whoever makes the executor, which it must outlive. Threads: one. Blocking: each call, with the communicator's
// timeout. Fails with CommError.
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
  /// The end that owns and updates the weight.
  struct Owner {
    std::function<void(const torch::Tensor& sum)> add_gradient;
    std::function<torch::Tensor()> weight;
  };
  /// The end that also computes with it.
  struct Use {
    std::function<torch::Tensor()> gradient;
    std::function<void(const torch::Tensor& weight)> take_weight;
  };
  struct Tie {
    int owner_rank = 0, use_rank = 0;                                               ///< ranks along the pipeline
    std::optional<Owner> owner = {};                                                ///< only set on the owner's rank
    std::optional<Use> use = {};                                                    ///< only set on the rank of the use
    std::shared_ptr<ParcelRoute> gradient_route = nullptr, weight_route = nullptr;  ///< null: stages alike
  };

  /// `ties` are indexed by the programs' tie numbers. `pipeline` carries ties without routes, and may be null if all
  /// their ends are on one rank; `routes` carries those with routes.
  TiedWeights(std::vector<Tie> ties, Communicator* pipeline, MeshMessages* routes, torch::Device device)
      : ties_(std::move(ties)), pipeline_(pipeline), routes_(routes), device_(device) {}

  /// Carry out SendTiedGradient, AddTiedGradient, SendTiedWeight and TakeTiedWeight of a tie.
  void send_gradient(int number) const;
  void add_gradient(int number) const;
  void send_weight(int number) const;
  void take_weight(int number) const;
  /// Sends the owners' weights to all copies, outside of a program. Collective over the ranks of the model.
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
