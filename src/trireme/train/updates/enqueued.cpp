// All-reduced gradients on a GPU: norm, clipping and optimizer are enqueued after the passes, and the host waits once.
// After a few steps the whole step becomes one captured graph.
#include "trireme/base/deadline.h"
#include "trireme/base/fault.h"
#include "trireme/tensor/device.h"
#include "trireme/train/updates/policies.h"

namespace trireme {
namespace {

constexpr int64_t kWarmupSteps = 3;  // before a graph is captured: libraries choose their algorithms in these

class EnqueuedUpdate : public UpdatePolicy {
 public:
  EnqueuedUpdate(const UpdateContext& context, std::shared_ptr<DeviceUpdate> weights)
      : UpdatePolicy(context), weights_(std::move(weights)), graph_(part_.parameters().device()) {
    rules_.check = StepRules::Check::kNorm;
  }

  void begin(const StepStart& start) override {
    UpdatePolicy::begin(start);
    began_ = Clock::now();
    weights_->prepare(start.updates, start.lr, average_ / start.loss_scale.scale);
  }

  /// Returns no times, since the program only enqueues.
  StepTimes launch(const std::function<StepTimes()>& program) override {
    const bool is_warm = launches_++ >= kWarmupSteps;
    if (!graph_.captured() && is_warm && can_capture()) graph_.capture(program);
    if (graph_.captured()) {
      graph_.replay();
    } else {
      program();
    }
    return {};
  }

  /// Waits for the gradients only if other ranks hold parts of the model; otherwise the device computes the norm.
  void norm() override {
    norm_.reset();
    if (groups_.model() || groups_.shard_group()) norm_ = totals(weights_->squares(groups_), 0).norm;
  }

  std::optional<StepEnd> update(int) override {
    weights_->enqueue(last_values(), norm_);
    part_.parameters().mark_all_stale();
    return std::nullopt;
  }

  std::optional<StepEnd> finish() override {
    enqueue_s_ = std::chrono::duration<double>(Clock::now() - began_).count();
    const DeviceUpdate::Outcome outcome = weights_->read();
    const float* const values = outcome.values.const_data_ptr<float>();
    std::vector<double> loss = {values[kLoss]};  // 0 except on the last stage
    groups_.sum_over_stages(loss);
    const StepSums sums{.loss = loss[0],
                        .own_norm = outcome.gradient_norm,
                        .norm = outcome.gradient_norm,
                        // A graph replays the flag from its capture.
                        .stop = world_.size() == 1 ? start_.stop : values[kStop] > 0};
    const StepEnd end = decide(sums, start_.loss_scale, rules_);
    if (end.updates()) update_statistics();
    return end;
  }

  double enqueue_s() const override { return enqueue_s_; }
  std::vector<Optimizer::Kind> state() override { return weights_->optimizer().state(); }
  size_t state_bytes() const override { return weights_->optimizer().num_bytes(); }

 private:
  /// Not if host code decides something within the step: communication with other ranks, dropout masks, injected
  /// faults.
  bool can_capture() const {
    const bool draws = part_.model().modules_of() == Model::Modules::kTorch || config_.model.dropout > 0;
    return config_.train.graph && world_.size() == 1 && !draws && !faults_armed();
  }

  const std::shared_ptr<DeviceUpdate> weights_;
  DeviceGraph graph_;
  std::optional<double> norm_;  ///< norm of the current step's gradient sums
  int64_t launches_ = 0;
  Clock::time_point began_;
  double enqueue_s_ = 0;
};

}  // namespace

std::unique_ptr<UpdatePolicy> make_enqueued(const UpdateContext& context, std::shared_ptr<DeviceUpdate> weights) {
  return std::make_unique<EnqueuedUpdate>(context, std::move(weights));
}

}  // namespace trireme
