// BatchNorm over images: normalises by the statistics of the micro-batch, or of all replicas' micro-batches, and leaves
// the update of the running statistics to the end of the step.
#pragma once

#include <torch/nn/module.h>

#include <functional>

namespace trireme {

/// Sums a vector of float64 over replicas, in place. All replicas call it equally often, in the same order. It may
/// block until all have called it; its exceptions propagate out of forward or backward.
using SumOverReplicas = std::function<void(torch::Tensor&)>;

/// Channels are dim 1. In training mode it uses the statistics of its input and stores them in `observed_*`, but never
/// changes the running ones, which are updated once per step (Statistic in models/statistics.h). In evaluation mode it
/// uses the running ones.
class BatchNorm : public torch::nn::Module {
 public:
  /// `synchronized`: statistics are over all replicas, once set_sum_over_replicas() has been called.
  explicit BatchNorm(int64_t channels, bool synchronized = false, double eps = 1e-5, double momentum = 0.1);
  torch::Tensor forward(const torch::Tensor& x);

  double momentum() const { return momentum_; }
  bool synchronized() const { return synchronized_; }
  void set_sum_over_replicas(SumOverReplicas sum) { sum_ = std::move(sum); }

  torch::Tensor weight, bias;
  torch::Tensor running_mean, running_var;    ///< buffers
  torch::Tensor observed_mean, observed_var;  ///< last forward in training mode; the variance is unbiased

 private:
  bool synchronized_;
  double eps_, momentum_;
  SumOverReplicas sum_;
};

/// Sets it for every synchronized BatchNorm in `module`, which a shared_ptr must own.
void set_sum_over_replicas(torch::nn::Module& module, const SumOverReplicas& sum);

}  // namespace trireme
