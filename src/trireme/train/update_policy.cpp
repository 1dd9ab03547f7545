#include "trireme/train/update_policy.h"

#include <cmath>
#include <numeric>

#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

UpdatePolicy::UpdatePolicy(const UpdateContext& context)
    : world_(context.world),
      config_(context.config),
      groups_(context.groups),
      part_(context.part),
      executor_(context.executor),
      exchange_(executor_.program().update.exchange),
      rules_{.clip = context.config.train.clip,
             .num_micro_batches = context.layout.micro_batches(),
             .scales_loss = context.config.precision.compute == NumberType::kFloat16,
             .growth_every = context.config.precision.loss_scale_growth_every} {
  const auto averaged = static_cast<double>(rules_.num_micro_batches / executor_.program().num_updates);
  average_ = config_.parallel.aggregation == Aggregation::kSum ? 1 : 1.0 / averaged;
}

void UpdatePolicy::update_statistics() const {
  const torch::NoGradGuard no_grad;
  const double fraction =
      static_cast<double>(executor_.program().num_updates) / static_cast<double>(rules_.num_micro_batches);
  for (const StageSet::Stage& stage : part_.stages()) {
    int64_t at = kNumValues;
    for (const Statistic& statistic : part_.statistics(stage)) {
      const int64_t count = statistic.running.numel();
      const torch::Tensor sum = executor_.values(stage.number).narrow(0, at, count);
      move_statistic(statistic, sum.view(statistic.running.sizes()) * fraction);
      at += count;
    }
  }
}

UpdatePolicy::Totals UpdatePolicy::totals(const std::vector<double>& squares, double own_loss) const {
  const std::vector<ModelPart::Weight>& weights = part_.weights();
  const size_t count = weights.size();
  // The squared norm of each parameter's gradient, then the loss; `parts` has those of sharded parameters, this rank's
  // part.
  std::vector<double> numbers(count + 1, 0.0), parts(count, 0.0);
  for (size_t i = 0; i < count; ++i) {
    if (weights[i].entry < 0) continue;
    const auto entry = static_cast<size_t>(weights[i].entry);
    const MeshSpec* spec = mesh_spec(part_.parameters().entries()[entry].parameter);
    (spec && !spec->layout->is_replicated ? parts : numbers)[i] = squares[entry];
  }
  if (groups_.tensor()) groups_.tensor()->all_reduce(parts);
  for (size_t i = 0; i < count; ++i) numbers[i] += parts[i];
  if (part_.has_last()) numbers.back() = own_loss;
  groups_.sum_over_stages(numbers);
  return {std::sqrt(std::accumulate(numbers.begin(), numbers.end() - 1, 0.0)), numbers.back()};
}

}  // namespace trireme
