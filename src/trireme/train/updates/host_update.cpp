#include "trireme/train/updates/host_update.h"

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
