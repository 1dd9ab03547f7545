// Messages of a pipeline whose stages differ in shape: a stage is replicas beside each other, each so many ranks that
// share its operators; a message goes from the replica that has its lane to the one that has it in the next stage
// ([Note: Lanes]), and is cut anew on its way ([Note: Resharding]).
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

namespace trireme {

/// Where a stage is: ranks of a communicator, replica by replica.
struct LaneStage {
  int first_rank = 0, replicas = 1, tp = 1;
  bool cuts_sequence = false;  ///< activations with three dims are cut along the second
};

class LaneMessages : public MeshMessages {
 public:
  /// `program`: any of this rank; stages are its ranks. `mesh`: the tp ranks of this one's replica, also where it is
  /// alone.
  LaneMessages(Communicator& comm, std::vector<LaneStage> stages, std::shared_ptr<DeviceMesh> mesh, Program program,
               torch::Device device);

  void send(const PipelineMessage& message, int to, const torch::Tensor& tensor) override;
  void post_receive(const PipelineMessage& message, int from) override;
  torch::Tensor take(const PipelineMessage& message) override;
  void set_gradient_form(int stage, TensorForm form) override;

  /// Beside a program: what this rank's stage has made in a lane goes to the next stage, in whatever shape; `length`
  /// is that of the sequence where it is cut. Returns at once: finish() waits until it has gone. A replica that waited
  /// here for each lane could wait for one of its own, with which it gathers weights.
  void send_on(const torch::Tensor& output, int lane, int64_t length);
  torch::Tensor receive_on(int lane);

 private:
  /// Messages of one kind from one replica that are to be received.
  struct Line {
    std::deque<PipelineMessage> waiting;  ///< for their shape
    Handle handle;                        ///< of the shape on its way
    torch::Tensor numbers;
    std::optional<TensorForm> form;  ///< of the whole tensor
  };
  const LaneStage& stage(int number) const { return stages_[static_cast<size_t>(number)]; }
  std::vector<Placement> placements(int stage, const TensorForm& form) const;
  TensorForm whole_of(TensorForm part) const;
  MeshPlace place_of(int stage, int replica) const;
  ParcelRoute make_route(const MeshPlace& from, int from_stage, const MeshPlace& to, int to_stage,
                         const TensorForm& form) const;
  const ParcelRoute& route_of(bool is_gradient, int replica, bool sends, const TensorForm& form);
  void send_form(const TensorForm& form, const MeshPlace& to, uint32_t tag);
  torch::Tensor shaped(const torch::Tensor& flat, const TensorForm& form) const;
  int source_of(const PipelineMessage& message) const;
  Line& line_of(const PipelineMessage& message);
  void post_line(Line& line);

  const std::vector<LaneStage> stages_;
  const std::shared_ptr<DeviceMesh> mesh_;
  const Program program_;  ///< its numbers alone
  const int own_stage_, own_replica_;
  std::map<std::tuple<bool, int, bool>, ParcelRoute> routes_;
  std::set<int> told_;                          ///< replicas of the next stage
  std::map<std::pair<bool, int>, Line> lines_;  ///< is_gradient, replica
  std::optional<TensorForm> output_;            ///< of the own stage, whole
};

}  // namespace trireme
