// Policies with which the host decides at the end of a step: it waits for the gradients' sums, then updates or skips.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trireme/train/update_policy.h"
#include "trireme/train/weight_update.h"

namespace trireme {

class HostDecision : public UpdatePolicy {
 public:
  using UpdatePolicy::UpdatePolicy;
  void norm() override;
  std::optional<StepEnd> update(int stage) override;

 protected:
  /// Brings the gradients of the update to the host.
  virtual void collect() = 0;
  /// Σ g² of each entry of the parameters, of what collect() has brought.
  virtual std::vector<double> squares() = 0;
  /// From what collect() has brought to averages, with the loss scale.
  virtual double factor() const { return average_ / start_.loss_scale.scale; }
  /// The norm that is reported: where replicas update alone, a mean.
  virtual double norm_over_replicas(double own) const { return own; }
  /// Updates the weights, or leaves them where the step is skipped.
  virtual void apply(const StepEnd& end) = 0;

  StepEnd end_;  ///< of the step under way, as norm() has decided
};

/// All-reduced gradients; the base of policies that make gradients otherwise.
class HostUpdate : public HostDecision {
 public:
  HostUpdate(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights)
      : HostDecision(context), weights_(std::move(weights)) {}

  std::vector<Optimizer::Kind> state() override { return weights_->optimizer().state(); }
  size_t state_bytes() const override { return weights_->optimizer().num_bytes(); }

 protected:
  void collect() override { weights_->fetch(); }
  std::vector<double> squares() override { return weights_->squares(groups_); }
  void apply(const StepEnd& end) override;
  /// Of an array that holds something of all shards of the parameters, one after another.
  GroupLayout layout_of_shards(const std::string& name) const;

  const std::shared_ptr<WeightUpdate> weights_;
};

}  // namespace trireme
