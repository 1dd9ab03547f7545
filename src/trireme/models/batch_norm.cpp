#include "trireme/models/batch_norm.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SumHolder : torch::CustomClassHolder {
  explicit SumHolder(SumOverReplicas sum_) : sum(std::move(sum_)) {}
  SumOverReplicas sum;
};

/// All dims except the channels.
std::vector<int64_t> sample_dims(const torch::Tensor& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.dim() - 1));
  std::iota(dims.begin() + 1, dims.end(), 2);
  return dims;
}

/// A per-channel vector, shaped to broadcast against x.
torch::Tensor along_channels(const torch::Tensor& values, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return values.to(torch::kFloat32).view(shape);
}

/// Replicas exchange 2 sums per channel and the number of elements in forward, 2 sums per channel in backward. The sums
/// are float64, because the variance is a difference of large sums.
class SynchronizedNorm : public torch::autograd::Function<SynchronizedNorm> {
 public:
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias, const SumOverReplicas& sum_over_replicas, double eps) {
    const auto wide = x.to(torch::kFloat32);
    const auto dims = sample_dims(x);
    const int64_t channels = x.size(1);
    const auto [own_var, own_mean] = at::var_mean(wide, dims, /*correction=*/0);
    const auto own_count =
        at::full({1}, static_cast<double>(x.numel() / channels), own_mean.options().dtype(at::kDouble));
    const auto m = own_mean.to(torch::kFloat64);
    auto sums = at::cat({m * own_count, (own_var.to(torch::kFloat64) + m.square()) * own_count, own_count});
    sum_over_replicas(sums);

    const auto count = sums[-1];
    const auto mean = sums.narrow(0, 0, channels) / count;
    const auto var = (sums.narrow(0, channels, channels) / count - mean.square()).clamp_min(0);
    const auto inverse_deviation = at::rsqrt(var + eps);
    const auto out = at::addcmul(along_channels(bias, x), wide - along_channels(mean, x),
                                 along_channels(weight * inverse_deviation, x));

    context->save_for_backward({x, weight, mean, inverse_deviation, count});
    context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<SumHolder>(sum_over_replicas));
    const auto seen_mean = mean.to(torch::kFloat32);
    const auto seen_var = (var * (count / (count - 1))).to(torch::kFloat32);
    context->mark_non_differentiable({seen_mean, seen_var});
    return {out.to(x.scalar_type()), seen_mean, seen_var};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse_deviation = saved[3], &count = saved[4];
    const auto dims = sample_dims(x);
    const int64_t channels = x.size(1);
    const auto grad = grads[0].to(torch::kFloat32);
    const auto centred = x.to(torch::kFloat32) - along_channels(mean, x);
    const auto own_sum = grad.sum(dims), own_product = (grad * centred).sum(dims);

    auto sums = at::cat({own_sum, own_product}).to(torch::kFloat64);
    c10::static_intrusive_pointer_cast<SumHolder>(context->saved_data["sum"].toCapsule())->sum(sums);
    const auto mean_grad = sums.narrow(0, 0, channels) / count;
    const auto slope = sums.narrow(0, channels, channels) / count * inverse_deviation.square();
    const auto grad_x = (grad - along_channels(mean_grad, x) - centred * along_channels(slope, x)) *
                        along_channels(weight * inverse_deviation, x);
    return {grad_x.to(x.scalar_type()), (own_product * inverse_deviation).to(weight.scalar_type()),
            own_sum.to(weight.scalar_type()), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

BatchNorm::BatchNorm(int64_t channels, bool synchronized, double eps, double momentum)
    : weight(register_parameter("weight", at::empty({channels}))),
      bias(register_parameter("bias", at::empty({channels}))),
      running_mean(register_buffer("running_mean", at::zeros({channels}))),
      running_var(register_buffer("running_var", at::ones({channels}))),
      synchronized_(synchronized),
      eps_(eps),
      momentum_(momentum) {}

torch::Tensor BatchNorm::forward(const torch::Tensor& x) {
  if (!is_training()) return at::batch_norm(x, weight, bias, running_mean, running_var, false, 0, eps_, false);
  if (synchronized_ && sum_) {
    auto result = SynchronizedNorm::apply(x, weight, bias, sum_, eps_);
    observed_mean = result[1];
    observed_var = result[2];
    return result[0];
  }
  // New tensors each time, since backward keeps them. With momentum 1, "running" means this micro-batch alone. They are
  // placed like the channels, which may be sharded.
  observed_mean = at::zeros_like(weight.detach(), running_mean.scalar_type());
  observed_var = at::zeros_like(observed_mean);
  return at::batch_norm(x, weight, bias, observed_mean, observed_var, true, 1, eps_, false);
}

void set_sum_over_replicas(torch::nn::Module& module, const SumOverReplicas& sum) {
  for (const auto& child : module.modules()) {
    auto* norm = dynamic_cast<BatchNorm*>(child.get());
    if (norm && norm->synchronized()) norm->set_sum_over_replicas(sum);
  }
}

}  // namespace trireme
