// Messages of a pipeline whose stages differ in shape: a stage is replicas beside each other, each so many ranks that
// share its operators; a message goes from the replica that has its lane to the one that has it in the next stage
// ([Note: Lanes]), and is cut again on its way ([Note: Resharding]).
//
// Shapes are learnt as in [Note: Shapes in a pipeline]: before its first activation, a replica tells each that gets
// activations from it what these look like.
//
// Owner: a model part of the trainer. Threads: one. Blocking and failing: as MeshMessages.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "trireme/runtime/mesh_messages.h"
#include "trireme/shape/layout.h"

namespace trireme {

class LaneMessages : public MeshMessages {
 public:
  /// `layout`: its stages are ranks of the communicator, replica by replica. `program`: any of this rank; stages are
  /// its ranks. `mesh`: the tp ranks of this one's replica, also where it is alone. `any_shapes`: forms come with every
  /// message, which is received where it is used.
  LaneMessages(Communicator& comm, Layout layout, std::shared_ptr<DeviceMesh> mesh, Program program,
               torch::Device device, bool any_shapes = false);

  void send(const PipelineMessage& message, int to, const Tensors& tensors) override;
  void post_receive(const PipelineMessage& message, int from) override;
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int stage, TensorForms forms) override;

  /// Of whole tensors that are cut along the sequence, where the parts may differ; 0: they are alike.
  void set_sequence(int64_t length) { sequence_ = length; }

 private:
  /// Messages of one kind from one replica that are to be received.
  struct Line {
    std::deque<PipelineMessage> waiting;  ///< for their shape
    Handle handle;                        ///< of the shapes on their way
    torch::Tensor numbers;
    std::optional<TensorForms> forms;  ///< of whole tensors
  };
  int tp_of(int stage) const { return static_cast<int>(layout_.stages[static_cast<size_t>(stage)].tp); }
  int first_rank_of(int stage) const { return static_cast<int>(layout_.first_worker(stage)); }
  std::vector<Placement> placements(int stage, const TensorForm& form) const;
  TensorForms whole_of(TensorForms parts) const;
  MeshPlace place_of(int stage, int replica) const;
  ParcelRoute make_route(const MeshPlace& from, int from_stage, const MeshPlace& to, int to_stage,
                         const TensorForm& form) const;
  const ParcelRoute& route_of(bool is_gradient, int replica, bool sends, const TensorForm& form, size_t tensor);
  void send_forms(const TensorForms& forms, const MeshPlace& to, uint32_t tag);
  torch::Tensor shaped(const torch::Tensor& flat, const TensorForm& form) const;
  int source_of(const PipelineMessage& message) const;
  Line& line_of(const PipelineMessage& message);
  void post_line(Line& line);
  TensorForms receive_forms(const PipelineMessage& message);

  const Layout layout_;
  const std::shared_ptr<DeviceMesh> mesh_;
  const Program program_;  ///< its numbers alone
  const int own_stage_, own_replica_;
  const bool any_shapes_;
  int64_t sequence_ = 0;
  std::map<std::tuple<bool, int, bool, size_t>, ParcelRoute> routes_;
  std::set<int> told_;                          ///< replicas of the next stage
  std::map<std::pair<bool, int>, Line> lines_;  ///< is_gradient, replica
  std::optional<TensorForms> gradients_;        ///< of the own stage's outputs, whole
};

}  // namespace trireme
