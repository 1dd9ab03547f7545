// GELU and cross entropy on our kernels: each reads its input once, and keeps only what the backward needs.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "trireme/base/error.h"
#include "trireme/models/functions.h"
#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"

namespace trireme::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 14;  // minimum elements per thread
constexpr int64_t kIgnored = -100;

/// x must be contiguous.
at::Tensor forward_gelu(const at::Tensor& x) {
  auto y = at::empty_like(x);
  const float* const from = x.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](int64_t first, int64_t end) {
    model_kernels::best()->gelu(from + first, to + first, end - first);
  });
  return y;
}

class GeluFunction : public torch::autograd::Function<GeluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return forward_gelu(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("gelu");
    const auto x = context->get_saved_variables()[0], dy = gradients[0].contiguous();
    auto dx = at::empty_like(x);
    const float *const values = x.const_data_ptr<float>(), *const from = dy.const_data_ptr<float>();
    float* const to = dx.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t first, int64_t end) {
      model_kernels::best()->gelu_backward(values + first, from + first, to + first, end - first);
    });
    return {dx};
  }
};

/// Returns the mean loss; writes its gradient into `gradient` if defined. All must be contiguous.
at::Tensor forward_cross_entropy(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& gradient) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const auto* const classes_wanted = target.const_data_ptr<int64_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t wanted = classes_wanted[i];
    if (wanted == kIgnored) continue;
    if (wanted < 0 || wanted >= classes) {
      throw Error(fmt::format("target {} of row {} is none of the {} classes", wanted, i, classes),
                  "give targets from 0 on, or -100 for rows that do not count");
    }
    ++count;
  }
  const float* const from = logits.const_data_ptr<float>();
  float* const to = gradient.defined() ? gradient.mutable_data_ptr<float>() : nullptr;
  const auto scale = static_cast<float>(1 / static_cast<double>(count));
  std::vector<float> losses(static_cast<size_t>(rows));
  at::parallel_for(0, rows, kGrain / classes + 1, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      float* const row = to ? to + i * classes : nullptr;
      if (classes_wanted[i] != kIgnored) {
        losses[static_cast<size_t>(i)] =
            model_kernels::best()->cross_entropy(from + i * classes, classes, classes_wanted[i], row, scale);
      } else if (row) {
        for (int64_t j = 0; j < classes; ++j) row[j] = 0;
      }
    }
  });
  double sum = 0;
  for (const float loss : losses) sum += loss;
  auto mean = at::empty({}, logits.options());
  *mean.mutable_data_ptr<float>() = static_cast<float>(sum / static_cast<double>(count));
  return mean;
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target) {
    const auto gradient = at::empty_like(logits);
    context->save_for_backward({gradient});
    return forward_cross_entropy(logits, target, gradient);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("cross_entropy");
    const auto gradient = context->get_saved_variables()[0];
    const auto factor = gradients[0].item<float>();
    return {factor == 1 ? gradient : gradient * factor, {}};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  if (on_mesh::serves({x})) return on_mesh::gelu(x);
  if (!kernels_for({x})) return plain::gelu(x);
  return wants_gradient({x}) ? GeluFunction::apply(x.contiguous()) : forward_gelu(x.contiguous());
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  if (on_mesh::serves({logits})) return on_mesh::cross_entropy(logits, target);
  const auto wide = logits.to(at::kFloat);
  if (!kernels_for({wide}) || target.scalar_type() != at::kLong || !target.is_cpu() || wide.size(-1) == 0) {
    return plain::cross_entropy(wide, target);
  }
  const auto rows = wide.flatten(0, -2).contiguous(), wanted = target.flatten().contiguous();
  if (rows.size(0) != wanted.size(0)) return plain::cross_entropy(wide, target);
  return wants_gradient({wide}) ? CrossEntropyFunction::apply(rows, wanted) : forward_cross_entropy(rows, wanted, {});
}

}  // namespace trireme::ops
