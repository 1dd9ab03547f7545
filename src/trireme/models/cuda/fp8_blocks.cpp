// The halves of a GPT-2 block with 8-bit matmuls. Norm and GELU are quantised in the pass that computes them, the bias
// gradient is summed in the quantising pass, and only 8-bit transposes are kept for the backward.
#include <utility>

#include "trireme/models/cuda/fp8_linear.h"
#include "trireme/models/functions_inside.h"

namespace trireme::ops::on_gpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class MlpBlockFp8 : public torch::autograd::Function<MlpBlockFp8> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, const at::Tensor& up, const at::Tensor& up_bias,
                            const at::Tensor& down, const at::Tensor& down_bias, double eps, const Fp8LinearPtr& up8,
                            const Fp8LinearPtr& down8) {
    (void)up, (void)down;
    const auto bias = in_type_of(up_bias, x), last_bias = in_type_of(down_bias, x);
    Fp8Normed norm = quantised_layer_norm(x, scale, shift, eps, *up8);
    const auto before_gelu = times_weight_fp8(norm.values, *up8, bias);
    norm.values.reset();
    const Fp8Copies inner = quantised_gelu(before_gelu, *down8);
    context->save_for_backward(
        {x, scale, norm.mean, norm.rstd, norm.transposed, before_gelu, inner.transposed, up_bias});
    keep(context, "up", up8);
    keep(context, "down", down8);
    return times_weight_fp8(inner.values, *down8, last_bias, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("mlp_block");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &scale = saved[1], &normed = saved[4], &before_gelu = saved[5], &inner = saved[6],
               &vector = saved[7];
    const auto dy = packed(gradients[0]);
    auto down = linear_backward_fp8(dy, {}, inner, vector, *kept(context, "down"));
    const auto up = linear_backward_fp8(std::move(down.dx), before_gelu, normed, vector, *kept(context, "up"));
    const NormGradients norm = layer_norm_backward(up.dx, x, scale, saved[2], saved[3], dy);
    return {norm.dx, norm.d_scale, norm.d_shift, up.d_weight, up.d_bias, down.d_weight, down.d_bias, {}, {}, {}};
  }
};

class AttentionBlockFp8 : public torch::autograd::Function<AttentionBlockFp8> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& output, const at::Tensor& output_bias, int64_t heads, double eps,
                            const Fp8LinearPtr& qkv8, const Fp8LinearPtr& output8) {
    (void)weight, (void)output;
    const auto bias_in_type = in_type_of(bias, x), last_bias = in_type_of(output_bias, x);
    Fp8Normed norm = quantised_layer_norm(x, scale, shift, eps, *qkv8);
    const auto qkv = times_weight_fp8(norm.values, *qkv8, bias_in_type);
    norm.values.reset();
    const Attended attended = attend(qkv, heads);
    const Fp8Copies o8 = quantised(attended.o, *output8);
    context->save_for_backward(
        {x, scale, norm.mean, norm.rstd, norm.transposed, qkv, attended.o, attended.log_sums, o8.transposed, bias});
    context->saved_data["heads"] = heads;
    keep(context, "qkv", qkv8);
    keep(context, "output", output8);
    return times_weight_fp8(o8.values, *output8, last_bias, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("attention_block");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &scale = saved[1], &normed = saved[4], &qkv = saved[5], &o = saved[6],
               &log_sums = saved[7], &o8 = saved[8], &vector = saved[9];
    const auto dy = packed(gradients[0]);
    const auto last = linear_backward_fp8(dy, {}, o8, vector, *kept(context, "output"));
    auto d_qkv = attend_backward(qkv, {o, log_sums}, last.dx, context->saved_data["heads"].toInt());
    const auto first = linear_backward_fp8(std::move(d_qkv), {}, normed, vector, *kept(context, "qkv"));
    const NormGradients norm = layer_norm_backward(first.dx, x, scale, saved[2], saved[3], dy);
    return {norm.dx, norm.d_scale, norm.d_shift, first.d_weight, first.d_bias, last.d_weight, last.d_bias, {}, {}, {},
            {}};
  }
};

}  // namespace

at::Tensor mlp_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                         const LinearParameters& down, const Fp8LinearPtr& up8, const Fp8LinearPtr& down8) {
  return MlpBlockFp8::apply(packed(x), norm.scale, norm.shift, up.weight, up.bias, down.weight, down.bias, norm.eps,
                            up8, down8);
}

at::Tensor attention_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                               const LinearParameters& output, int64_t heads, const Fp8LinearPtr& qkv8,
                               const Fp8LinearPtr& output8) {
  return AttentionBlockFp8::apply(packed(x), norm.scale, norm.shift, qkv.weight, qkv.bias, output.weight, output.bias,
                                  heads, norm.eps, qkv8, output8);
}

}  // namespace trireme::ops::on_gpu
