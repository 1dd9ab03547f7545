// Policies that decide on the host at the end of a step: wait for the gradient sums, then update or skip.
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
  /// Copies the gradients of the update to the host.
  virtual void collect() = 0;
  /// Σ g² of each entry of the parameters, after collect().
  virtual std::vector<double> squares() = 0;
  /// Factor from the collected sums to averages, with the loss scale divided out.
  virtual double factor() const { return average_ / start_.loss_scale.scale; }
  /// Updates the weights, unless the step is skipped.
  virtual void apply(const StepEnd& end) = 0;

  StepEnd end_;  ///< decision of norm() for the current step

 private:
  double norm_over_replicas(double own) const;
};

/// For all-reduced gradients; also the base of policies that combine gradients in another way.
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
  /// Layout of an array that holds a value per element of all shards of the parameters, one shard after another.
  GroupLayout layout_of_shards(const std::string& name) const;

  const std::shared_ptr<WeightUpdate> weights_;
};

}  // namespace trireme
