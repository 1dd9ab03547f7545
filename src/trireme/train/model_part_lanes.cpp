// ModelPart for stages of different shapes: messages in lanes, and routes of tied weights between such stages.
#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/model_part.h"

namespace trireme {

void ModelPart::make_lanes() {
  lane_messages_ = std::make_unique<LaneMessages>(*groups_.between_stages(), groups_.layout(), groups_.replica_mesh(),
                                                  program_of(shape_, groups_.pipeline_rank, groups_.replica), device_);
}

/// Makes ties with routes: all replicas of a stage hold the weight, sharded over the ranks of each.
std::vector<TiedWeights::Tie> ModelPart::routed_ties() const {
  const auto place_of = [&](int stage) {
    const auto& [dp, tp] = groups_.layout().stages[at(stage)];
    const bool is_own = stage == groups_.pipeline_rank;
    return MeshPlace{groups_.first_worker(stage),
                     {static_cast<int>(dp), static_cast<int>(tp)},
                     is_own ? groups_.stage_mesh() : nullptr};
  };
  const auto placements = [&](const std::string& name, int stage) {
    const int tp = static_cast<int>(groups_.layout().stages[at(stage)].tp);
    std::vector<Placement> all = {Placement::replicate(), Placement::replicate()};
    if (tp > 1) {
      all[1] = placements_for(name, model_->tensor_parallel_rules(tp), Mesh({{"tp", tp}}))[0];
    }
    return all;
  };
  std::vector<TiedWeights::Tie> ties;
  for (const TiedParameter& tied : held_->tied()) {
    TiedWeights::Tie& tie = ties.emplace_back(tied.owner_rank, tied.use_rank);
    if (!tied.use && !tied.owner) continue;
    if (tied.owner) {
      tie.owner = {[this, own = *tied.owner](const torch::Tensor& whole) {
                     const torch::Tensor sum = own_of(own, whole);
                     held_->gradient_of(own).view({-1}).narrow(0, 0, sum.numel()).add_(sum);
                   },
                   [this, own = *tied.owner] { return whole_of(own, held_->weight_of(own)); }};
    }
    if (tied.use) {
      tie.use = {[this, use = *tied.use] { return whole_of(use, held_->gradient_of(use)); },
                 [this, use = *tied.use](const torch::Tensor& whole) {
                   held_->weight_of(use).view({-1}).copy_(own_of(use, whole));
                   held_->mark_written(use);
                 }};
    }
    const auto weight =
        std::find_if(weights_.begin(), weights_.end(), [&](const Weight& each) { return each.name == tied.name; });
    const torch::ScalarType type = held_->source(tied.use ? *tied.use : *tied.owner).leaf.scalar_type();
    const auto route = [&](int from, int to, torch::ScalarType travels) {
      const ParcelItem item{weight->sizes, placements(tied.name, from), placements(tied.name, to)};
      return std::make_shared<ParcelRoute>(std::vector{item}, place_of(from), place_of(to),
                                           torch::TensorOptions().dtype(travels).device(device_));
    };
    tie.gradient_route = route(tied.use_rank, tied.owner_rank, torch::kFloat32);
    tie.weight_route = route(tied.owner_rank, tied.use_rank, type);
  }
  return ties;
}

/// All-gathers a source, flat, over the replicas that shard it, from this rank's shard; or returns `own` if it is not
/// sharded.
torch::Tensor ModelPart::whole_of(const SourcePlace& place, const torch::Tensor& own) const {
  const GradientStore& store = held_->store(place);
  if (!held_->is_sharded(place)) return own.reshape({-1});
  const int64_t count = local_part(held_->source(place).leaf).numel();
  std::vector<size_t> counts;
  const std::vector<int64_t>& cuts = store.cuts(held_->group_of(place));
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {  // cuts may be in the padding at the end
    counts.push_back(static_cast<size_t>(std::min(cuts[i + 1], count) - std::min(cuts[i], count)));
  }
  const auto rank = static_cast<size_t>(groups_.shard_group()->rank());
  const torch::Tensor whole = torch::empty({count}, own.options());
  const torch::Tensor part = own.narrow(0, 0, static_cast<int64_t>(counts[rank])).contiguous();
  groups_.shard_group()->all_gather_v(data_of(part), data_of(whole), counts, call_options(device_));
  return whole;
}

/// The reverse: this rank's shard of a whole source, or all of it if it is not sharded.
torch::Tensor ModelPart::own_of(const SourcePlace& place, const torch::Tensor& whole) const {
  const GradientStore& store = held_->store(place);
  if (!held_->is_sharded(place)) return whole;
  const std::vector<int64_t>& cuts = store.cuts(held_->group_of(place));
  const auto rank = static_cast<size_t>(groups_.shard_group()->rank());
  const int64_t begin = std::min(cuts[rank], whole.numel()), end = std::min(cuts[rank + 1], whole.numel());
  return whole.narrow(0, begin, end - begin);
}

}  // namespace trireme
