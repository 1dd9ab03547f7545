// Where a worker stands in the layout: its place along dp, pp and tp, and the workers it shares something with.
//
// Ranks count through {dp, pp, tp}: those of one model are neighbours, and of those the ones that share operators.
// Where stages differ in shape they count stage by stage, and in each through {dp, tp}.
//
// Owner: the trainer. The constructor is collective. The world must outlive it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/config/config.h"
#include "trireme/runtime/lane_messages.h"
#include "trireme/tensor/device_mesh.h"

namespace trireme {

/// Which rank of the pipeline a worker is.
int pipeline_rank_of(const Config& config, int rank);

class RankGroups {
 public:
  /// `dp`: replicas, or lanes where stages differ.
  RankGroups(World& world, const torch::Device& device, const Config& config, int64_t dp);

  const int pp;
  const int pipeline_rank;      ///< 0 … pp − 1
  const int dp, tp;             ///< of this one's stage
  const int replica;            ///< of the stage: 0 … dp − 1
  const int place;              ///< along tp
  const int lanes, first_lane;  ///< of this one's replica ([Note: Lanes]); one where all stages are alike
  bool has_lane(int64_t lane) const { return lane >= first_lane && lane < first_lane + lanes; }

  /// With the same part of the model; null where this one has it alone.
  Communicator* replicas() const;
  /// Those of replicas() that share with this one what ZeRO shares; null where nobody shares. This one alone where
  /// there are no others, but weights come and go.
  Communicator* sharers() const { return shares_ ? (sharers_ ? sharers_.get() : replicas()) : nullptr; }
  /// Those that have the same share in other sets of sharers; null where all of replicas() share.
  Communicator* copies() const { return copies_.get(); }
  /// With the other stages of this one's replica, and the same place; null without a pipeline, and where stages differ.
  Communicator* pipeline() const { return pipeline_.get(); }
  /// With the rest of the replica, and of all that it exchanges lanes with; null where this one holds the whole model.
  Communicator* model() const { return stages_.empty() ? model_.get() : &world_.comm(); }
  /// Over the tp ranks of this one's stage; null where tp is 1.
  const std::shared_ptr<DeviceMesh>& tensor_mesh() const { return tensor_mesh_; }
  Communicator* tensor() const { return tensor_mesh_ ? tensor_.get() : nullptr; }

  /// Where stages differ: each of them, the messages between them, the tp ranks of this one's replica and all ranks of
  /// its stage, {dp, tp}.
  const std::vector<LaneStage>& stages() const { return stages_; }
  Communicator* between_stages() const { return between_.get(); }
  const std::shared_ptr<DeviceMesh>& replica_mesh() const { return replica_mesh_; }
  const std::shared_ptr<DeviceMesh>& stage_mesh() const { return stage_mesh_; }

  /// Of numbers that are alike on all workers of a stage. Collective over the ranks of a model.
  template <typename T>
  void sum_over_stages(std::vector<T>& values) const {
    if (pipeline()) pipeline()->all_reduce(values);
    if (stages_.empty()) return;
    if (holder() > 0) std::fill(values.begin(), values.end(), T{0});
    world_.comm().all_reduce(values);
  }
  /// What all workers of a stage have, to all of the model. Collective.
  void share_of_stage(const torch::Tensor& tensor, int stage) const;

  /// Of the workers that hold the same stage, with all their parts: how many there are, and the number of this one.
  int num_holders() const { return dp * tp; }
  int holder() const { return replica * tp + place; }
  /// The first of all that hold a stage, among the workers.
  int first_worker(int stage) const {
    return stages_.empty() ? stage * tp : stages_[static_cast<size_t>(stage)].first_rank;
  }

 private:
  struct Standing {
    int pp, pipeline_rank, dp, tp, replica, place, lanes;
  };
  static Standing standing_of(const Config& config, int rank, int64_t dp);
  RankGroups(World& world, const torch::Device& device, const Config& config, const Standing& at);
  void split_model(const ParallelConfig& parallel);
  void split_stages(const ParallelConfig& parallel);

  World& world_;
  const torch::Device device_;
  const bool shares_;
  const std::vector<LaneStage> stages_;
  std::unique_ptr<Communicator> replicas_, pipeline_, model_, tensor_, sharers_, copies_, between_, stage_;
  std::shared_ptr<DeviceMesh> tensor_mesh_, replica_mesh_, stage_mesh_;
};

}  // namespace trireme
