// Parcels between stages that are each a mesh: a send of the pipeline becomes a resharding ([Note: Resharding]).
//
// A parcel is what crosses a cut: this rank's parts of several tensors, flat, one after another. The meshes on both
// sides may differ in shape, and so may the placements; a parcel arrives in the receiver's placements.
//
// Owner: the mesh form of parallelize(), or a ModelPart (as LaneMessages). Threads: one. Blocking: take() and finish(),
// each wait with the communicator's timeout; take() gathers inside the receiving mesh, so all ranks of that mesh must
// call it in the same order, as their programs do. Fails with CommError.
#pragma once

#include <torch/torch.h>

#include <map>
#include <memory>
#include <vector>

#include "trireme/layout/resharding.h"
#include "trireme/runtime/pipeline_messages.h"
#include "trireme/tensor/device_mesh.h"

namespace trireme {

/// Consecutive ranks of a communicator as a mesh.
struct MeshPlace {
  int first_rank = 0;
  std::vector<int> axis_sizes;
  std::shared_ptr<DeviceMesh> mesh = nullptr;  ///< null on ranks outside of it
};

/// A tensor of a parcel. One without dims counts as one element.
struct ParcelItem {
  std::vector<int64_t> sizes;
  std::vector<Placement> from, to;
  bool travels = true;  ///< false: nothing is sent, and zeros arrive
};

/// The route of a parcel from one mesh to another.
class ParcelRoute {
 public:
  ParcelRoute(std::vector<ParcelItem> items, MeshPlace from, MeshPlace to, torch::TensorOptions options);

  /// For the sender: splits this rank's parts into what goes to each rank.
  std::map<int, torch::Tensor> pack(const torch::Tensor& parcel) const;
  /// For the receiver: number of elements that come from each rank.
  const std::map<int, int64_t>& expected() const { return expected_; }
  /// For the receiver: assembles its parts. Gathers inside its mesh.
  torch::Tensor unpack(const std::map<int, torch::Tensor>& arrived) const;
  const torch::TensorOptions& options() const { return options_; }

 private:
  const std::vector<ParcelItem> items_;
  const MeshPlace from_, to_;
  const torch::TensorOptions options_;
  std::vector<Resharding> plans_;  ///< one per item, with this rank's messages only
  std::map<int, int64_t> expected_;
};

class MeshMessages : public StageMessages {
 public:
  MeshMessages(Communicator& comm, int num_micro_batches, torch::Device device);

  /// Sets the route of messages to this stage: its input, or the gradient of its output.
  void set_route(bool is_gradient, int stage, ParcelRoute route);
  void send(const PipelineMessage& message, int to, const Tensors& parcel) override;
  void post_receive(const PipelineMessage& message, int from) override;
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int, TensorForms) override {}
  void finish() override;

  /// Send or receive a parcel outside of a program, and wait for it. `number` tells several such parcels apart.
  void send_now(const ParcelRoute& route, const torch::Tensor& parcel, int number);
  torch::Tensor receive_now(const ParcelRoute& route, int number);

 protected:
  uint32_t tag_of(const PipelineMessage& message, size_t tensor = 0) const;
  void start_sends(const ParcelRoute& route, const torch::Tensor& parcel, uint32_t tag);
  /// Posts the receives of a message's tensor; wait_for() waits for them.
  void expect(const PipelineMessage& message, const ParcelRoute& route, uint32_t tag, size_t tensor = 0);
  torch::Tensor wait_for(const ParcelRoute& route, const PipelineMessage& message, size_t tensor = 0);
  void keep_until_sent(Handle handle, const torch::Tensor& tensor);
  /// Waits until at most `most` tensors are in flight.
  void limit_sent(size_t most);

  Communicator& comm_;
  const torch::Device device_;

 private:
  struct Sent {
    Handle handle;
    torch::Tensor tensor;
  };
  struct Arriving {
    std::vector<Handle> handles;
    std::map<int, torch::Tensor> tensors;
  };
  const ParcelRoute& route_of(const PipelineMessage& message) const;

  const uint32_t num_micro_batches_;
  std::map<std::pair<bool, int>, ParcelRoute> routes_;
  std::vector<Sent> sent_;
  /// Keyed by message and tensor. Kept until they have arrived, since receives write to their memory.
  std::map<std::pair<PipelineMessage, size_t>, Arriving> arriving_;
};

}  // namespace trireme
