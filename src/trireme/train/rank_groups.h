// Where a worker stands in the layout: its place along dp, pp and tp, and the workers it shares something with.
//
// Ranks count through {dp, pp, tp}: those of one model are neighbours, and of those the ones that share operators.
// Owner: the trainer. The constructor is collective. The world must outlive it.
#pragma once

#include <memory>

#include "trireme/comm/world.h"
#include "trireme/config/config.h"
#include "trireme/tensor/device_mesh.h"

namespace trireme {

class RankGroups {
 public:
  RankGroups(World& world, const torch::Device& device, const ParallelConfig& parallel, int64_t dp);

  const int dp, pp, tp;
  const int replica;        ///< of the model: 0 … dp − 1
  const int pipeline_rank;  ///< 0 … pp − 1
  const int place;          ///< along tp

  /// With the same part of the model; null where this one has it alone.
  Communicator* replicas() const;
  /// Those of replicas() that share with this one what ZeRO shares; null where nobody shares. This one alone where
  /// there are no others, but weights come and go.
  Communicator* sharers() const { return shares_ ? (sharers_ ? sharers_.get() : replicas()) : nullptr; }
  /// Those that have the same share in other sets of sharers; null where all of replicas() share.
  Communicator* copies() const { return copies_.get(); }
  /// With the other stages of this one's replica, and the same place; null without a pipeline.
  Communicator* pipeline() const { return pipeline_.get(); }
  /// With the rest of the replica; null where this one holds it all.
  Communicator* model() const { return model_.get(); }
  /// Over the tp ranks of this one's stage; null where tp is 1.
  const std::shared_ptr<DeviceMesh>& tensor_mesh() const { return tensor_mesh_; }
  Communicator* tensor() const { return tensor_.get(); }

  /// Of the workers that hold the same stage, with all their parts: how many there are, and the number of this one.
  int num_holders() const { return dp * tp; }
  int holder() const { return replica * tp + place; }

 private:
  void split_model(const ParallelConfig& parallel);

  World& world_;
  const bool shares_;
  std::unique_ptr<Communicator> replicas_, pipeline_, model_, tensor_, sharers_, copies_;
  std::shared_ptr<DeviceMesh> tensor_mesh_;
};

}  // namespace trireme
