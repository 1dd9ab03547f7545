// Where a worker stands in the layout: its place along dp, pp and tp, and the groups it belongs to.
//
// Owner: the trainer. The constructor is collective. The world must outlive it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/shape/layout.h"
#include "trireme/tensor/device_mesh.h"

namespace trireme {

class RankGroups {
 public:
  RankGroups(World& world, const torch::Device& device, const Layout& layout);

  const int pp;
  const int pipeline_rank;      ///< 0 … pp − 1
  const int dp, tp;             ///< of this one's stage
  const int replica;            ///< of the stage: 0 … dp − 1
  const int place;              ///< along tp
  const int lanes, first_lane;  ///< of this one's replica ([Note: Lanes]); one where all stages are alike
  bool has_lane(int64_t lane) const { return lane >= first_lane && lane < first_lane + lanes; }

  /// With the same part of the model; null where this one has it alone.
  Communicator* replicas() const;
  /// The replicas among which ZeRO shards, with this one; null without ZeRO. This one alone where
  /// there are no others, but weights come and go.
  Communicator* shard_group() const { return shards_ ? (shard_group_ ? shard_group_.get() : replicas()) : nullptr; }
  /// Ranks that hold the same shard in the other shard groups (HSDP's replicate axis); null where there is one group.
  Communicator* copies() const { return copies_.get(); }
  /// With the other stages of this one's replica, and the same place; null without a pipeline, and where stages differ.
  Communicator* pipeline() const { return pipeline_.get(); }
  /// With the rest of the replica, and of all that it exchanges lanes with; null where this one holds the whole model.
  Communicator* model() const { return layout_.stages.empty() ? model_.get() : &world_.comm(); }
  /// Over the tp ranks of this one's stage; null where tp is 1.
  const std::shared_ptr<DeviceMesh>& tensor_mesh() const { return tensor_mesh_; }
  Communicator* tensor() const { return tensor_mesh_ ? tensor_.get() : nullptr; }

  const Layout& layout() const { return layout_; }
  /// Where stages differ: the messages between them, the tp ranks of this one's replica and all ranks of its stage,
  /// {dp, tp}.
  Communicator* between_stages() const { return between_.get(); }
  const std::shared_ptr<DeviceMesh>& replica_mesh() const { return replica_mesh_; }
  const std::shared_ptr<DeviceMesh>& stage_mesh() const { return stage_mesh_; }

  /// Of numbers that are alike on all workers of a stage. Collective over the ranks of a model.
  template <typename T>
  void sum_over_stages(std::vector<T>& values) const {
    if (pipeline()) pipeline()->all_reduce(values);
    if (layout_.stages.empty()) return;
    if (holder() > 0) std::fill(values.begin(), values.end(), T{0});
    world_.comm().all_reduce(values);
  }
  /// What all workers of a stage have, to all of the model. Collective.
  void broadcast_from_stage(const torch::Tensor& tensor, int stage) const;

  /// Of the workers that hold the same stage, with all their parts: how many there are, and the number of this one.
  int num_holders() const { return dp * tp; }
  int holder() const { return replica * tp + place; }
  /// The first of all that hold a stage, among the workers.
  int first_worker(int stage) const { return static_cast<int>(layout_.first_worker(stage)); }

 private:
  struct Standing {
    int pp, pipeline_rank, dp, tp, replica, place, lanes;
  };
  static Standing standing_of(const Layout& layout, int rank);
  RankGroups(World& world, const torch::Device& device, const Layout& layout, const Standing& at);
  void split_model();
  void split_stages();

  World& world_;
  const torch::Device device_;
  const bool shards_;
  const Layout layout_;
  std::unique_ptr<Communicator> replicas_, pipeline_, model_, tensor_, shard_group_, copies_, between_, stage_;
  std::shared_ptr<DeviceMesh> tensor_mesh_, replica_mesh_, stage_mesh_;
};

}  // namespace trireme
