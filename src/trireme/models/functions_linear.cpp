// The linear layer on our matrix products: the bias is where sums begin, and nothing is transposed in memory.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "trireme/models/functions.h"
#include "trireme/models/functions_gpu.h"
#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"
#include "trireme/models/functions_plain.h"
#include "trireme/models/kernels/multiply.h"

namespace trireme::ops {
namespace {

using model_kernels::Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const float* data(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

/// x is contiguous, as are the weights and the bias.
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
    context->saved_data["in"] = weight.size(1);
    context->saved_data["has_bias"] = bias.has_value();
    return forward_linear(x, weight, bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("linear");
    const auto saved = context->get_saved_variables();
    const auto dy = gradients[0].contiguous();
    const auto& kernels = *model_kernels::best();
    const int64_t in = context->saved_data["in"].toInt(), out = dy.size(-1), rows = out ? dy.numel() / out : 0;
    variable_list result(3);
    if (context->needs_input_grad(0)) {
      auto shape = dy.sizes().vec();
      shape.back() = in;
      result[0] = at::empty(shape, dy.options());
      model_kernels::multiply(kernels, rows, in, out, {data(dy), out, 1}, {data(saved[1]), in, 1}, nullptr,
                              result[0].mutable_data_ptr<float>());
    }
    if (context->needs_input_grad(1)) {
      result[1] = at::empty({out, in}, dy.options());
      model_kernels::multiply(kernels, out, in, rows, {data(dy), 1, out}, {data(saved[0]), in, 1}, nullptr,
                              result[1].mutable_data_ptr<float>());
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = at::empty({out}, dy.options());
      kernels.column_sums(data(dy), rows, out, out, result[2].mutable_data_ptr<float>());
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (on_mesh::serves({x, weight})) return on_mesh::linear(x, weight, bias);
  if (on_gpu::serves(x)) {
    if (const auto y = on_gpu::linear(x, weight, bias); y.defined()) return y;
  }
  if (!model_kernels::multiply_pays() || !kernels_for({x, weight, bias}) || x.dim() == 0 || weight.dim() != 2 ||
      x.size(-1) != weight.size(1)) {
    return plain::linear(x, weight, bias);  // which also words the complaint about shapes
  }
  const auto ours = bias.defined() ? bias.contiguous() : bias;
  if (!wants_gradient({x, weight, bias})) return forward_linear(x.contiguous(), weight.contiguous(), ours);
  // libtorch takes no undefined tensor here.
  return LinearFunction::apply(x.contiguous(), weight.contiguous(),
                               ours.defined() ? std::optional(ours) : std::nullopt);
}

}  // namespace trireme::ops
