#include "trireme/train/rank_groups.h"

#include "trireme/tensor/device.h"

namespace trireme {

RankGroups::RankGroups(World& world, const torch::Device& device, const ParallelConfig& parallel, int64_t num_replicas)
    : dp(static_cast<int>(num_replicas)),
      pp(static_cast<int>(parallel.pp)),
      tp(static_cast<int>(parallel.tp)),
      replica(world.rank() / (pp * tp)),
      pipeline_rank(world.rank() / tp % pp),
      place(world.rank() % tp),
      world_(world),
      shares_(parallel.zero > 0 && (num_replicas > 1 || parallel.offload_weights)) {
  if (world.size() > 1 || shares_) attach_device(world.comm(), device);
  split_model(parallel);
  if (shares_ && dp == 1) {  // weights come and go all the same
    sharers_ = world.comm().split(world.rank());
    return;
  }
  const int num_sharers = static_cast<int>(parallel.zero_shards);
  if (!shares_ || num_sharers == 0 || num_sharers == dp) return;
  sharers_ = replicas()->split(replica / num_sharers, replica % num_sharers);
  copies_ = replicas()->split(replica % num_sharers, replica / num_sharers);
}

void RankGroups::split_model(const ParallelConfig& parallel) {
  if (pp * tp == 1) return;
  Communicator& all = world_.comm();
  model_ = all.split(replica, pipeline_rank * tp + place);
  replicas_ = all.split(pipeline_rank * tp + place, replica);
  if (pp > 1) pipeline_ = all.split(replica * tp + place, pipeline_rank);
  if (tp == 1) return;
  tensor_ = all.split(replica * pp + pipeline_rank, place);
  tensor_mesh_ = DeviceMesh::make(*tensor_, Mesh({{"tp", tp}}));
  tensor_mesh_->set_sequence_parallel(parallel.sequence);
}

Communicator* RankGroups::replicas() const { return dp == 1 ? nullptr : replicas_ ? replicas_.get() : &world_.comm(); }

}  // namespace trireme
