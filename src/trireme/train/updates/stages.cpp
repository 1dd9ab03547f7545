// Several updates per step (PipeDream): each stage is updated while other stages still process micro-batches. Nothing
// can depend on all gradients of an update, so they are not clipped, and numbers that are not finite are found too
// late.
#include "trireme/train/updates/policies.h"

namespace trireme {
namespace {

class StageUpdates : public UpdatePolicy {
 public:
  StageUpdates(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights)
      : UpdatePolicy(context), weights_(std::move(weights)) {
    rules_.check = StepRules::Check::kNone;
  }

  void begin(const StepStart& start) override {
    UpdatePolicy::begin(start);
    number_ = start.updates;
    loss_sum_ = torch::zeros({}, torch::TensorOptions().device(part_.parameters().device()).dtype(torch::kFloat64));
  }

  /// With several updates per step, a rank has only one stage.
  std::optional<StepEnd> update(int) override {
    if (part_.is_last(part_.stages().back())) loss_sum_.add_(last_values()[kLoss]);
    weights_->fetch();
    weights_->apply(number_++, start_.lr, average_);
    update_statistics();
    return std::nullopt;
  }

  /// Reports the norm of the last update.
  std::optional<StepEnd> finish() override {
    const Totals totals = this->totals(weights_->squares(groups_), loss_sum_.item<double>());
    const double norm = totals.norm * average_;
    const bool stop = last_values()[kStop].item<float>() > 0;
    return decide({.loss = totals.loss, .factor = average_, .own_norm = norm, .norm = norm, .stop = stop},
                  start_.loss_scale, rules_);
  }

  std::vector<Optimizer::Kind> state() override { return weights_->optimizer().state(); }
  size_t state_bytes() const override { return weights_->optimizer().num_bytes(); }

 private:
  const std::shared_ptr<WeightUpdate> weights_;
  int64_t number_ = 0;      ///< number of the next update
  torch::Tensor loss_sum_;  ///< sum of the micro-batches' losses, float64
};

}  // namespace

std::unique_ptr<UpdatePolicy> make_stages(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights) {
  return std::make_unique<StageUpdates>(context, std::move(weights));
}

}  // namespace trireme
