// The linear layer on our matmul: sums start at the bias, and nothing is transposed in memory.
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "trireme/models/functions.h"
#include "trireme/models/functions_gpu.h"
#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"
#include "trireme/models/kernels/multiply.h"

namespace trireme::ops {
namespace {

using model_kernels::Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const float* data(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

/// x, weight and bias must be contiguous.
at::Tensor forward_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t in = weight.size(1), out = weight.size(0), rows = in ? x.numel() / in : 0;
  auto shape = x.sizes().vec();
  shape.back() = out;
  auto y = at::empty(shape, x.options());
  model_kernels::multiply(*model_kernels::best(), rows, out, in, {data(x), in, 1}, {data(weight), 1, in}, data(bias),
                          y.mutable_data_ptr<float>());
  return y;
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? weight : at::Tensor()});
    context->saved_data["has_bias"] = bias.has_value();
    return forward_linear(x, weight, bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("linear");
    const auto saved = context->get_saved_variables();
    const auto dy = gradients[0].contiguous();
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = linear_input_gradient(dy, saved[1], true);
    if (context->needs_input_grad(1)) result[1] = linear_weight_gradient(dy, saved[0], true);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = linear_bias_gradient(dy, true);
    }
    return result;
  }
};

}  // namespace

bool linear_is_ours(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return model_kernels::multiply_pays() && kernels_for({x, weight, bias}) && x.dim() > 0 && weight.dim() == 2 &&
         x.size(-1) == weight.size(1);
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight, bool ours) {
  if (!ours) return at::matmul(dy, weight);
  const int64_t in = weight.size(1), out = dy.size(-1), rows = out ? dy.numel() / out : 0;
  auto shape = dy.sizes().vec();
  shape.back() = in;
  auto dx = at::empty(shape, dy.options());
  model_kernels::multiply(*model_kernels::best(), rows, in, out, {data(dy), out, 1}, {data(weight), in, 1}, nullptr,
                          dx.mutable_data_ptr<float>());
  return dx;
}

at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x, bool ours) {
  const int64_t in = x.size(-1), out = dy.size(-1), rows = out ? dy.numel() / out : 0;
  if (!ours) return at::mm(dy.view({rows, out}).t(), x.view({rows, in}));
  auto dw = at::empty({out, in}, dy.options());
  model_kernels::multiply(*model_kernels::best(), out, in, rows, {data(dy), 1, out}, {data(x), in, 1}, nullptr,
                          dw.mutable_data_ptr<float>());
  return dw;
}

at::Tensor linear_bias_gradient(const at::Tensor& dy, bool ours) {
  const int64_t out = dy.size(-1), rows = out ? dy.numel() / out : 0;
  if (!ours) return dy.view({rows, out}).sum(0);
  auto db = at::empty({out}, dy.options());
  model_kernels::best()->column_sums(data(dy), rows, out, out, db.mutable_data_ptr<float>());
  return db;
}

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  if (on_mesh::serves({x, layers[0].weight})) return on_mesh::linears(x, layers);
  std::vector<at::Tensor> results;
  for (const LinearParameters& layer : layers) results.push_back(linear(x, layer.weight, layer.bias));
  return results;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (on_mesh::serves({x, weight})) return on_mesh::linear(x, weight, bias);
  if (on_gpu::serves(x)) {
    if (const auto y = on_gpu::linear(x, weight, bias); y.defined()) return y;
  }
  if (!linear_is_ours(x, weight, bias)) {
    return plain::linear(x, weight, bias);  // also reports wrong shapes
  }
  const auto ours = bias.defined() ? bias.contiguous() : bias;
  if (!wants_gradient({x, weight, bias})) return forward_linear(x.contiguous(), weight.contiguous(), ours);
  // libtorch takes no undefined tensor here.
  return LinearFunction::apply(x.contiguous(), weight.contiguous(),
                               ours.defined() ? std::optional(ours) : std::nullopt);
}

}  // namespace trireme::ops
