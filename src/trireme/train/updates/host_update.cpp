#include "trireme/train/updates/host_update.h"

#include <cmath>

namespace trireme {

void HostDecision::norm() {
  collect();
  const torch::Tensor values = last_values().cpu();
  const float* const numbers = values.const_data_ptr<float>();
  const Totals totals = this->totals(squares(), numbers[kLoss]);
  const double factor = this->factor(), norm = totals.norm * factor;
  const StepSums sums{.loss = totals.loss,
                      .factor = factor,
                      .own_norm = norm,
                      .norm = norm_over_replicas(norm),
                      .stop = numbers[kStop] > 0};
  end_ = decide(sums, start_.loss_scale, rules_);
}

/// Root mean square of the norms of replicas that update alone; not finite if any of them is not. So all of them come
/// to one verdict.
double HostDecision::norm_over_replicas(double own) const {
  if (exchange_ != GradientExchange::kLocal) return own;
  std::vector<double> square = {own * own};
  groups_.replicas()->all_reduce(square);
  return std::sqrt(square[0] / groups_.replicas()->size());
}

std::optional<StepEnd> HostDecision::update(int /*stage*/) {
  apply(end_);
  if (end_.updates()) update_statistics();
  return end_;
}

GroupLayout HostUpdate::layout_of_shards(const std::string& name) const {
  GroupLayout layout{name, 0, {}};
  for (const ParameterStore::Shard& shard : part_.parameters().shards()) {
    const auto count = static_cast<size_t>(shard.count);
    layout.parts.push_back({part_.parameters().entries()[shard.entry].name, layout.count, 1, count});
    layout.count += count;
  }
  return layout;
}

void HostUpdate::apply(const StepEnd& end) {
  if (!end.updates()) return;
  weights_->apply(start_.updates, start_.lr, end.factor);
}

}  // namespace trireme
