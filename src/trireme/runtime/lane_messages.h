// Messages of a pipeline whose stages differ in shape. A stage is several replicas, each of them so many ranks that
// divide its operators among themselves. A message goes from the replica that holds its lane to the one that holds it
// in the next stage ([Note: Lanes]), and is resharded on the way ([Note: Resharding]).
//
// Shapes are learned as in [Note: Shapes in a pipeline]: before its first activation, a replica sends the forms of its
// activations to each replica that receives them.
//
// Owner: a ModelPart, or StepEngine for forward passes. Threads: one. Blocking and failure: as MeshMessages; with
// `any_shapes`, send() may also wait.
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
  /// `layout`: its stages are ranks of the communicator, replica by replica. `program`: any program of this rank; its
  /// pipeline ranks are the stages. `mesh`: the tp ranks of this rank's replica, even if there is just one.
  /// `any_shapes`: forms precede every message, which is then received when it is used.
  LaneMessages(Communicator& comm, Layout layout, std::shared_ptr<DeviceMesh> mesh, Program program,
               torch::Device device, bool any_shapes = false);

  void send(const PipelineMessage& message, int to, const Tensors& tensors) override;
  void post_receive(const PipelineMessage& message, int from) override;
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int stage, TensorForms forms) override;

  /// Sets the sequence length of whole tensors that are sharded along the sequence, whose parts may differ in length;
  /// 0: the parts have equal length.
  void set_sequence(int64_t length) { sequence_ = length; }

 private:
  /// Messages of one kind from one replica that are still to be received.
  struct Line {
    std::deque<PipelineMessage> waiting;  ///< messages that wait for their forms
    Handle handle;                        ///< receive of the forms
    torch::Tensor numbers;
    std::optional<TensorForms> forms;  ///< forms of whole tensors, once known
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
  const Program program_;  ///< without its instructions
  const int own_stage_, own_replica_;
  const bool any_shapes_;
  int64_t sequence_ = 0;
  std::map<std::tuple<bool, int, bool, size_t>, ParcelRoute> routes_;
  std::set<int> told_;                          ///< replicas of the next stage that know the forms
  std::map<std::pair<bool, int>, Line> lines_;  ///< keyed by is_gradient and replica
  std::optional<TensorForms> gradients_;        ///< forms of the own stage's outputs, whole
};

}  // namespace trireme
