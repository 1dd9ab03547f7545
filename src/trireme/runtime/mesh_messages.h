// Parcels between stages that are a mesh each: what a pipeline sends becomes a resharding ([Note: Resharding]).
//
// A parcel is what crosses a cut: several tensors, of which a rank has its parts, flat, one after another. The meshes
// on both sides may differ in shape, and so may the placements; a parcel arrives in those of the receiver.
//
// Owner: the form of parallelize(), or lanes of a trainer (lane_messages.h). Threads: one. Blocking: take() and
// finish(), each wait with the communicator's timeout; take() gathers inside the receiving mesh, so that all its ranks
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

/// Some neighbouring ranks of a communicator as a mesh.
struct MeshPlace {
  int first_rank = 0;
  std::vector<int> axis_sizes;
  std::shared_ptr<DeviceMesh> mesh = nullptr;  ///< null on ranks outside
};

/// A tensor of a parcel. One without dimensions counts as one element.
struct ParcelItem {
  std::vector<int64_t> sizes;
  std::vector<Placement> from, to;
  bool travels = true;  ///< false: zeros arrive, and nothing is sent
};

/// How a parcel goes from one mesh to another.
class ParcelRoute {
 public:
  ParcelRoute(std::vector<ParcelItem> items, MeshPlace from, MeshPlace to, torch::TensorOptions options);

  /// Of the sender: this rank's parts to what goes to each rank.
  std::map<int, torch::Tensor> pack(const torch::Tensor& parcel) const;
  /// Of the receiver: how many numbers come from each rank.
  const std::map<int, int64_t>& expected() const { return expected_; }
  /// Of the receiver: its parts. Gathers inside its mesh.
  torch::Tensor unpack(const std::map<int, torch::Tensor>& arrived) const;
  const torch::TensorOptions& options() const { return options_; }

 private:
  const std::vector<ParcelItem> items_;
  const MeshPlace from_, to_;
  const torch::TensorOptions options_;
  std::vector<Resharding> plans_;  ///< of each item; messages of this rank alone
  std::map<int, int64_t> expected_;
};

class MeshMessages : public StageMessages {
 public:
  MeshMessages(Communicator& comm, int num_micro_batches, torch::Device device);

  /// For messages to this stage: its input, or the gradient of its output.
  void set_route(bool is_gradient, int stage, ParcelRoute route);
  void send(const PipelineMessage& message, int to, const Tensors& parcel) override;
  void post_receive(const PipelineMessage& message, int from) override;
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int, TensorForms) override {}
  void finish() override;

  /// Beside a program: this rank sends or receives, whichever it is on. `number` keeps several apart.
  void send_now(const ParcelRoute& route, const torch::Tensor& parcel, int number);
  torch::Tensor receive_now(const ParcelRoute& route, int number);

 protected:
  uint32_t tag_of(const PipelineMessage& message, size_t tensor = 0) const;
  void start_sends(const ParcelRoute& route, const torch::Tensor& parcel, uint32_t tag);
  /// Posts the receives of a message's tensor; wait_for() waits for them.
  void expect(const PipelineMessage& message, const ParcelRoute& route, uint32_t tag, size_t tensor = 0);
  torch::Tensor wait_for(const ParcelRoute& route, const PipelineMessage& message, size_t tensor = 0);
  void keep_until_sent(Handle handle, const torch::Tensor& tensor);
  /// Waits until at most so many tensors are under way.
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
  /// By message and tensor, until they are there: messages write to their memory.
  std::map<std::pair<PipelineMessage, size_t>, Arriving> arriving_;
};

}  // namespace trireme
