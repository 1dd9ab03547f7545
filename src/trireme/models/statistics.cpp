#include "trireme/models/statistics.h"

#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/batchnorm.h>

namespace trireme {
namespace {

template <typename Norm>
class FollowedBatchNorm : public FollowedNorm {
 public:
  explicit FollowedBatchNorm(Norm& norm) : norm_(norm), momentum_(norm.options.momentum()) {}
  ~FollowedBatchNorm() override { use_running(); }

  void set_mode(bool training) override {
    if (!training || !norm_.is_training()) return use_running();
    if (observed_mean_.defined()) return;
    running_mean_ = norm_.running_mean;
    running_var_ = norm_.running_var;
    num_steps_ = norm_.num_batches_tracked;
    norm_.running_mean = observed_mean_ = at::zeros_like(running_mean_);
    norm_.running_var = observed_var_ = at::zeros_like(running_var_);
    norm_.num_batches_tracked = at::zeros_like(num_steps_);
    norm_.options.momentum(1);
  }

  void list_statistics(const std::string& name, std::vector<Statistic>& all) const override {
    const bool apart = observed_mean_.defined();
    const torch::Tensor counter = apart ? num_steps_ : norm_.num_batches_tracked;
    all.push_back({name + ".running_mean", apart ? running_mean_ : norm_.running_mean, &norm_.running_mean, momentum_,
                   counter, true});
    all.push_back(
        {name + ".running_var", apart ? running_var_ : norm_.running_var, &norm_.running_var, momentum_, counter});
  }

 private:
  void use_running() {
    if (!observed_mean_.defined()) return;
    norm_.running_mean = running_mean_;
    norm_.running_var = running_var_;
    norm_.num_batches_tracked = num_steps_;
    norm_.options.momentum(momentum_);
    observed_mean_.reset();
    observed_var_.reset();
  }

  Norm& norm_;
  const std::optional<double> momentum_;
  // The real running buffers, while they are set aside.
  torch::Tensor running_mean_, running_var_, num_steps_;
  torch::Tensor observed_mean_, observed_var_;
};

template <typename Norm>
std::unique_ptr<FollowedNorm> follow_if(torch::nn::Module& module) {
  auto* norm = dynamic_cast<Norm*>(&module);
  if (!norm || !norm->options.track_running_stats()) return nullptr;
  return std::make_unique<FollowedBatchNorm<Norm>>(*norm);
}

}  // namespace

void move_statistic(const Statistic& statistic, const torch::Tensor& mean) {
  if (statistic.observed->is_same(statistic.running)) return;  // a norm in evaluation mode observes nothing
  if (statistic.counts) statistic.num_steps.add_(1);
  statistic.running.lerp_(mean, statistic.momentum ? *statistic.momentum : 1.0 / statistic.num_steps.item<double>());
}

std::unique_ptr<FollowedNorm> follow_norm(torch::nn::Module& module) {
  if (auto norm = follow_if<torch::nn::BatchNorm2dImpl>(module)) return norm;
  if (auto norm = follow_if<torch::nn::BatchNorm1dImpl>(module)) return norm;
  return follow_if<torch::nn::BatchNorm3dImpl>(module);
}

}  // namespace trireme
