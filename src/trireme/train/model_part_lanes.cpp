// A model part among stages of different shapes: messages in lanes, and weights that two such stages share.
#include <algorithm>

#include "trireme/parallel/tensor/recipes.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/shared_tensor.h"
#include "trireme/train/model_part.h"

namespace trireme {

void ModelPart::make_lanes(const Config& config) {
  lane_messages_ =
      std::make_unique<LaneMessages>(*groups_.between_stages(), groups_.stages(), groups_.replica_mesh(),
                                     lower_pipeline(shape_, groups_.pipeline_rank, groups_.replica), device_);
  // All replicas of a stage have the weight, cut among the ranks of each.
  const auto place_of = [&](int stage) {
    const LaneStage& at = groups_.stages()[static_cast<size_t>(stage)];
    const bool is_own = stage == groups_.pipeline_rank;
    return MeshPlace{at.first_rank, {at.replicas, at.tp}, is_own ? groups_.stage_mesh() : nullptr};
  };
  const auto placements = [&](const std::string& name, int stage) {
    const int tp = groups_.stages()[static_cast<size_t>(stage)].tp;
    std::vector<Placement> all = {Placement::replicate(), Placement::replicate()};
    if (tp > 1) {
      all[1] = placements_for(name, tensor_parallel_rules(config.model, tp), Mesh({{"tp", tp}}))[0];
    }
    return all;
  };
  for (Shared& shared : shared_) {
    const bool used = shared.use == groups_.pipeline_rank;
    if (!used && shared.owner != groups_.pipeline_rank) continue;
    const auto weight =
        std::find_if(weights_.begin(), weights_.end(), [&](const Weight& each) { return each.name == shared.name; });
    const auto entry = parameters_->find(shared.name);
    const torch::ScalarType type =
        used ? shared.leaf.scalar_type() : parameters_->entries()[static_cast<size_t>(entry)].parameter.scalar_type();
    const auto route = [&](int from, int to, torch::ScalarType travels) {
      const ParcelItem item{weight->sizes, placements(shared.name, from), placements(shared.name, to)};
      return std::make_shared<ParcelRoute>(std::vector{item}, place_of(from), place_of(to),
                                           torch::TensorOptions().dtype(travels).device(device_));
    };
    shared.gradient_route = route(shared.use, shared.owner, torch::kFloat32);
    shared.weight_route = route(shared.owner, shared.use, type);
  }
}

/// What all replicas of this rank's place have of a source, flat, from what each has: all of it, or its share.
torch::Tensor ModelPart::whole_of(const Source& source, const torch::Tensor& own) const {
  const GradientStore& store = *stages_[source.stage].gradients;
  if (!store.is_shared(group_of(source))) return own.reshape({-1});
  const int64_t count = local_part(store.sources()[source.number].leaf).numel();
  std::vector<size_t> counts;
  const std::vector<int64_t>& cuts = store.cuts(group_of(source));
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {  // a gap may be at the end
    counts.push_back(static_cast<size_t>(std::min(cuts[i + 1], count) - std::min(cuts[i], count)));
  }
  const auto rank = static_cast<size_t>(groups_.sharers()->rank());
  const torch::Tensor whole = torch::empty({count}, own.options());
  const torch::Tensor part = own.narrow(0, 0, static_cast<int64_t>(counts[rank])).contiguous();
  groups_.sharers()->all_gather_v(data_of(part), data_of(whole), counts, call_options(device_));
  return whole;
}

/// And back.
torch::Tensor ModelPart::own_of(const Source& source, const torch::Tensor& whole) const {
  const GradientStore& store = *stages_[source.stage].gradients;
  if (!store.is_shared(group_of(source))) return whole;
  const std::vector<int64_t>& cuts = store.cuts(group_of(source));
  const auto rank = static_cast<size_t>(groups_.sharers()->rank());
  const int64_t begin = std::min(cuts[rank], whole.numel()), end = std::min(cuts[rank + 1], whole.numel());
  return whole.narrow(0, begin, end - begin);
}

void ModelPart::add_shared_gradients_over_lanes() const {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < shared_.size(); ++i) {
    const Shared& shared = shared_[i];
    const int number = static_cast<int>(2 * i);
    if (shared.use == groups_.pipeline_rank) {
      const torch::Tensor whole = whole_of(shared.of_use, gradient_of(shared.of_use)).to(torch::kFloat32);
      lane_messages_->send_now(*shared.gradient_route, whole, number);
    } else if (shared.owner == groups_.pipeline_rank) {
      const torch::Tensor sum = own_of(shared.of_owner, lane_messages_->receive_now(*shared.gradient_route, number));
      const torch::Tensor own = gradient_of(shared.of_owner).view({-1});
      own.narrow(0, 0, sum.numel()).add_(sum);
    }
  }
}

void ModelPart::share_weights_over_lanes() const {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < shared_.size(); ++i) {
    const Shared& shared = shared_[i];
    const bool used = shared.use == groups_.pipeline_rank;
    if (!used && shared.owner != groups_.pipeline_rank) continue;
    const Source& source = used ? shared.of_use : shared.of_owner;
    const bool is_shared = stages_[source.stage].gradients->is_shared(group_of(source));
    const auto own_part = [&] {
      if (is_shared) return parameters_->own_part(source.stage, source.number);
      if (used) return local_part(shared.leaf).view({-1});
      return local_part(parameters_->entries()[static_cast<size_t>(parameters_->find(shared.name))].parameter)
          .view({-1});
    };
    const int number = static_cast<int>(2 * i) + 1;
    if (!used) {
      lane_messages_->send_now(*shared.weight_route, whole_of(source, own_part()), number);
      continue;
    }
    own_part().copy_(own_of(source, lane_messages_->receive_now(*shared.weight_route, number)));
    if (is_shared) parameters_->mark_stale(source.stage, group_of(source));
  }
}

}  // namespace trireme
