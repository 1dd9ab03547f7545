// Where a worker is in the layout: its position along dp, pp and tp, and the communicators of its groups.
//
// Owner: the engine. The constructor is collective. The world must outlive it.
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
  const int dp, tp;             ///< degrees of this rank's stage
  const int replica;            ///< number within the stage: 0 … dp − 1
  const int place;              ///< position along tp
  const int lanes, first_lane;  ///< lanes of this rank's replica ([Note: Lanes]); one lane if all stages are alike
  bool has_lane(int64_t lane) const { return lane >= first_lane && lane < first_lane + lanes; }

  /// Ranks that hold the same part of the model, this one included; null if it is the only one.
  Communicator* replicas() const;
  /// Replicas among which ZeRO shards, this one included; null if nothing is sharded. A group of this rank alone if
  /// there is one replica whose weights are offloaded.
  Communicator* shard_group() const { return shards_ ? (shard_group_ ? shard_group_.get() : replicas()) : nullptr; }
  /// Ranks that hold the same shard in the other shard groups (HSDP's replicate axis); null where there is one group.
  Communicator* copies() const { return copies_.get(); }
  /// Ranks of the other stages of this replica, at the same tp position; null without a pipeline or if stages differ.
  Communicator* pipeline() const { return pipeline_.get(); }
  /// Ranks of this replica; if stages differ, all ranks. Null if this rank holds the whole model.
  Communicator* model() const { return layout_.stages.empty() ? model_.get() : &world_.comm(); }
  /// The tp ranks of this rank's stage; null if tp is 1.
  const std::shared_ptr<DeviceMesh>& tensor_mesh() const { return tensor_mesh_; }
  Communicator* tensor() const { return tensor_mesh_ ? tensor_.get() : nullptr; }

  const Layout& layout() const { return layout_; }
  /// Set only if stages differ in shape: the communicator for messages between stages, the mesh of this replica's tp
  /// ranks, and the {dp, tp} mesh of all ranks of this stage.
  Communicator* between_stages() const { return between_.get(); }
  const std::shared_ptr<DeviceMesh>& replica_mesh() const { return replica_mesh_; }
  const std::shared_ptr<DeviceMesh>& stage_mesh() const { return stage_mesh_; }

  /// Sums values that are equal on all workers of a stage over the stages. Collective over the ranks of a model.
  template <typename T>
  void sum_over_stages(std::vector<T>& values) const {
    if (pipeline()) pipeline()->all_reduce(values);
    if (layout_.stages.empty()) return;
    if (holder() > 0) std::fill(values.begin(), values.end(), T{0});
    world_.comm().all_reduce(values);
  }
  /// Broadcasts a tensor that all workers of `stage` hold to the rest of the model. Collective over the ranks of a
  /// model.
  void broadcast_from_stage(const torch::Tensor& tensor, int stage) const;

  /// Workers that hold some part of this rank's stage: how many there are, and the number of this one.
  int num_holders() const { return dp * tp; }
  int holder() const { return replica * tp + place; }
  /// The lowest rank that holds `stage`.
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
