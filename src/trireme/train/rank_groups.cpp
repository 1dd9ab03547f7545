#include "trireme/train/rank_groups.h"

#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
RankGroups::Standing RankGroups::standing_of(const Layout& layout, int rank) {
  const int stage = static_cast<int>(layout.pipeline_rank_of(rank)), pp = static_cast<int>(layout.pp);
  const Layout own = layout.of_stage(static_cast<size_t>(stage));
  const int dp = static_cast<int>(own.dp), tp = static_cast<int>(own.tp), lanes = static_cast<int>(own.lanes);
  if (layout.stages.empty()) return {pp, stage, dp, tp, rank / (pp * tp), rank % tp, lanes};
  const int number = rank - static_cast<int>(layout.first_worker(stage));
  return {pp, stage, dp, tp, number / tp, number % tp, lanes};
}

RankGroups::RankGroups(World& world, const torch::Device& device, const Layout& layout)
    : RankGroups(world, device, layout, standing_of(layout, world.rank())) {}

RankGroups::RankGroups(World& world, const torch::Device& device, const Layout& layout, const Standing& at)
    : pp(at.pp),
      pipeline_rank(at.pipeline_rank),
      dp(at.dp),
      tp(at.tp),
      replica(at.replica),
      place(at.place),
      lanes(at.lanes),
      first_lane(at.replica * at.lanes),
      world_(world),
      device_(device),
      shards_(layout.zero > 0 && (at.dp > 1 || layout.offload_weights)),
      layout_(layout) {
  if (world.size() > 1 || shards_) attach_device(world.comm(), device);
  if (layout_.stages.empty()) {
    split_model();
  } else {
    split_stages();
  }
  if (shards_ && dp == 1) {  // weights come and go all the same
    shard_group_ = (stage_ ? *stage_ : world.comm()).split(world.rank());
    return;
  }
  const int num_shards = static_cast<int>(layout.zero_shards);
  if (!shards_ || num_shards == 0 || num_shards == dp) return;
  shard_group_ = replicas()->split(replica / num_shards, replica % num_shards);
  copies_ = replicas()->split(replica % num_shards, replica / num_shards);
}

void RankGroups::split_model() {
  if (pp * tp == 1) return;
  Communicator& all = world_.comm();
  model_ = all.split(replica, pipeline_rank * tp + place);
  replicas_ = all.split(pipeline_rank * tp + place, replica);
  if (pp > 1) pipeline_ = all.split(replica * tp + place, pipeline_rank);
  if (tp == 1) return;
  tensor_ = all.split(replica * pp + pipeline_rank, place);
  tensor_mesh_ = DeviceMesh::make(*tensor_, Mesh({{"tp", tp}}));
  tensor_mesh_->set_sequence_parallel(layout_.sequence);
}

void RankGroups::split_stages() {
  Communicator& all = world_.comm();
  const int first = first_worker(pipeline_rank);
  between_ = all.split(0, all.rank());
  stage_ = all.split(pipeline_rank, all.rank());
  replicas_ = all.split(first + place, replica);
  tensor_ = all.split(first + replica * tp, place);
  stage_mesh_ = DeviceMesh::make(*stage_, Mesh({{"dp", dp}, {"tp", tp}}));
  replica_mesh_ = DeviceMesh::make(*tensor_, Mesh({{"tp", tp}}));
  if (tp == 1) return;
  tensor_mesh_ = replica_mesh_;
  tensor_mesh_->set_sequence_parallel(layout_.sequence);
}

Communicator* RankGroups::replicas() const { return dp == 1 ? nullptr : replicas_ ? replicas_.get() : &world_.comm(); }

void RankGroups::broadcast_from_stage(const torch::Tensor& tensor, int stage) const {
  if (pipeline()) pipeline()->broadcast(data_of(tensor), stage, call_options(device_));
  if (layout_.stages.empty()) return;
  world_.comm().broadcast(data_of(tensor), first_worker(stage), call_options(device_));
}

}  // namespace trireme
