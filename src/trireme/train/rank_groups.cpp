#include "trireme/train/rank_groups.h"

#include "trireme/config/stages.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {
namespace {

std::vector<LaneStage> lane_stages(const Config& config) {
  std::vector<LaneStage> stages;
  int next = 0;
  for (const StageDegrees& stage : stage_degrees(config)) {
    const int dp = static_cast<int>(stage.dp), tp = static_cast<int>(stage.tp);
    stages.push_back({next, dp, tp, config.parallel.sequence && tp > 1});
    next += dp * tp;
  }
  return stages;
}

}  // namespace

int pipeline_rank_of(const Config& config, int rank) {
  const std::vector<LaneStage> stages = lane_stages(config);
  if (stages.empty()) return static_cast<int>(rank / config.parallel.tp % config.parallel.pp);
  int stage = static_cast<int>(stages.size()) - 1;
  while (stages[static_cast<size_t>(stage)].first_rank > rank) --stage;
  return stage;
}

RankGroups::Standing RankGroups::standing_of(const Config& config, int rank, int64_t num_replicas) {
  const std::vector<LaneStage> stages = lane_stages(config);
  const int stage = pipeline_rank_of(config, rank), pp = static_cast<int>(config.parallel.pp);
  if (stages.empty()) {
    const int tp = static_cast<int>(config.parallel.tp);
    return {pp, stage, static_cast<int>(num_replicas), tp, rank / (pp * tp), rank % tp, 1};
  }
  const auto& [first, dp, tp, cuts] = stages[static_cast<size_t>(stage)];
  return {pp, stage, dp, tp, (rank - first) / tp, (rank - first) % tp, static_cast<int>(num_replicas) / dp};
}

RankGroups::RankGroups(World& world, const torch::Device& device, const Config& config, int64_t num_replicas)
    : RankGroups(world, device, config, standing_of(config, world.rank(), num_replicas)) {}

RankGroups::RankGroups(World& world, const torch::Device& device, const Config& config, const Standing& at)
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
      shares_(config.parallel.zero > 0 && (at.dp > 1 || config.parallel.offload_weights)),
      stages_(lane_stages(config)) {
  if (world.size() > 1 || shares_) attach_device(world.comm(), device);
  if (stages_.empty()) {
    split_model(config.parallel);
  } else {
    split_stages(config.parallel);
  }
  if (shares_ && dp == 1) {  // weights come and go all the same
    sharers_ = (stage_ ? *stage_ : world.comm()).split(world.rank());
    return;
  }
  const int num_sharers = static_cast<int>(config.parallel.zero_shards);
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

void RankGroups::split_stages(const ParallelConfig& parallel) {
  Communicator& all = world_.comm();
  const int first = stages_[static_cast<size_t>(pipeline_rank)].first_rank;
  between_ = all.split(0, all.rank());
  stage_ = all.split(pipeline_rank, all.rank());
  replicas_ = all.split(first + place, replica);
  tensor_ = all.split(first + replica * tp, place);
  stage_mesh_ = DeviceMesh::make(*stage_, Mesh({{"dp", dp}, {"tp", tp}}));
  replica_mesh_ = DeviceMesh::make(*tensor_, Mesh({{"tp", tp}}));
  if (tp == 1) return;
  tensor_mesh_ = replica_mesh_;
  tensor_mesh_->set_sequence_parallel(parallel.sequence);
}

Communicator* RankGroups::replicas() const { return dp == 1 ? nullptr : replicas_ ? replicas_.get() : &world_.comm(); }

void RankGroups::share_of_stage(const torch::Tensor& tensor, int stage) const {
  if (pipeline()) pipeline()->broadcast(data_of(tensor), stage, call_options(device_));
  if (stages_.empty()) return;
  world_.comm().broadcast(data_of(tensor), first_worker(stage), call_options(device_));
}

}  // namespace trireme
