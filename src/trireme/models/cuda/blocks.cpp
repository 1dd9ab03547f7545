// The halves of a GPT-2 block on a GPU: biases, GELU and the residual sum are fused into the matmuls, the norm's
// backward adds the gradient that bypassed it, and attention's gradients are written packed.
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/models/cuda/fp8_linear.h"
#include "trireme/models/cuda/inside.h"
#include "trireme/models/functions_inside.h"

namespace trireme::ops::on_gpu {
namespace {

using gpu::Epilogue;
using gpu::Matmul;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Matmul with_bias(const at::Tensor& bias, const at::Tensor& add = {}) {
  Matmul more;
  more.epilogue = Epilogue::kBias;
  more.bias = bias.const_data_ptr();
  if (add.defined()) more.add = add.const_data_ptr();
  return more;
}

// Wide models are short of memory, and a norm is cheap compared to their matmuls: so the backward recomputes the norm,
// to the same bits, instead of keeping it.
bool computes_norm_again(const at::Tensor& x) { return x.size(-1) > 1024; }

class MlpBlock : public torch::autograd::Function<MlpBlock> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, const at::Tensor& up, const at::Tensor& up_bias,
                            const at::Tensor& down, const at::Tensor& down_bias, double eps) {
    const Normed norm = apply_layer_norm(x, scale, shift, eps);
    const auto before_gelu = with_last_dim(x, up.size(0));
    const auto bias = in_type_of(up_bias, x), last_bias = in_type_of(down_bias, x);
    Matmul more = with_bias(bias);
    more.epilogue = Epilogue::kBiasGelu;
    more.aux = before_gelu.mutable_data_ptr();
    const auto inner = times_weight(norm.y, up, more);
    context->save_for_backward({x, scale, up, down, computes_norm_again(x) ? at::Tensor() : norm.y, norm.mean,
                                norm.rstd, before_gelu, inner, up_bias, shift});
    context->saved_data["eps"] = eps;
    return times_weight(inner, down, with_bias(last_bias, x));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("mlp_block");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &scale = saved[1], &up = saved[2], &down = saved[3], &before_gelu = saved[7],
               &inner = saved[8], &vector = saved[9], &shift = saved[10];
    const auto dy = packed(gradients[0]);
    const auto d_down = gradient_of_weight(dy, inner), d_down_bias = column_sums(dy, vector);
    Matmul more;
    more.epilogue = Epilogue::kGeluBackward;
    more.aux = before_gelu.mutable_data_ptr();
    const auto d_inner = gradient_of_x(dy, down, more);
    const auto normed =
        saved[4].defined() ? saved[4] : apply_layer_norm(x, scale, shift, context->saved_data["eps"].toDouble()).y;
    const auto d_up = gradient_of_weight(d_inner, normed), d_up_bias = column_sums(d_inner, vector);
    const auto d_normed = gradient_of_x(d_inner, up);
    const NormGradients norm = layer_norm_backward(d_normed, x, scale, saved[5], saved[6], dy);
    return {norm.dx, norm.d_scale, norm.d_shift, d_up, d_up_bias, d_down, d_down_bias, {}};
  }
};

class AttentionBlock : public torch::autograd::Function<AttentionBlock> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& output, const at::Tensor& output_bias, int64_t heads, double eps) {
    const Normed norm = apply_layer_norm(x, scale, shift, eps);
    const auto bias_in_type = in_type_of(bias, x), last_bias = in_type_of(output_bias, x);
    const auto qkv = times_weight(norm.y, weight, with_bias(bias_in_type));
    const Attended attended = attend(qkv, heads);
    context->save_for_backward(
        {x, scale, weight, output, norm.y, norm.mean, norm.rstd, qkv, attended.o, attended.log_sums, bias});
    context->saved_data["heads"] = heads;
    return times_weight(attended.o, output, with_bias(last_bias, x));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("attention_block");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &scale = saved[1], &weight = saved[2], &output = saved[3], &normed = saved[4],
               &qkv = saved[7], &o = saved[8], &log_sums = saved[9], &vector = saved[10];
    const int64_t heads = context->saved_data["heads"].toInt();
    const auto dy = packed(gradients[0]);
    const auto d_output = gradient_of_weight(dy, o), d_output_bias = column_sums(dy, vector);
    const auto d_o = gradient_of_x(dy, output);
    const auto d_qkv = attend_backward(qkv, {o, log_sums}, d_o, heads);
    const auto d_weight = gradient_of_weight(d_qkv, normed), d_bias = column_sums(d_qkv, vector);
    const auto d_normed = gradient_of_x(d_qkv, weight);
    const NormGradients norm = layer_norm_backward(d_normed, x, scale, saved[5], saved[6], dy);
    return {norm.dx, norm.d_scale, norm.d_shift, d_weight, d_bias, d_output, d_output_bias, {}, {}};
  }
};

/// Whether weights have the dtype of x, the norm's vectors are float32, and biases exist.
bool fits(const at::Tensor& x, const NormParameters& norm, std::initializer_list<const LinearParameters*> linears) {
  bool fits = x.dim() == 3 && norm.scale.scalar_type() == at::kFloat && norm.shift.scalar_type() == at::kFloat;
  for (const LinearParameters* linear : linears) {
    fits = fits && linear->bias.defined() && linear->weight.scalar_type() == x.scalar_type() &&
           linear->weight.is_contiguous() && linear->weight.size(0) % 8 == 0 && linear->weight.size(1) % 8 == 0;
  }
  return fits;
}

}  // namespace

at::Tensor attention_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                           const LinearParameters& output, int64_t heads) {
  if (!fits(x, norm, {&qkv, &output}) || x.size(-1) % heads != 0) return {};
  gpu::AttentionShape shape;
  shape.batch = x.size(0);
  shape.seq = x.size(1);
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = x.size(-1) / heads;
  shape.type = type_of(x);
  if (!gpu::attention_serves(shape)) return {};
  if (const auto qkv8 = find_fp8(qkv.weight), output8 = find_fp8(output.weight); qkv8 && output8 && fits_fp8(x)) {
    return attention_block_fp8(x, norm, qkv, output, heads, qkv8, output8);
  }
  return AttentionBlock::apply(packed(x), norm.scale, norm.shift, qkv.weight, qkv.bias, output.weight, output.bias,
                               heads, norm.eps);
}

at::Tensor mlp_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                     const LinearParameters& down) {
  if (!fits(x, norm, {&up, &down})) return {};
  if (const auto up8 = find_fp8(up.weight), down8 = find_fp8(down.weight); up8 && down8 && fits_fp8(x)) {
    return mlp_block_fp8(x, norm, up, down, up8, down8);
  }
  return MlpBlock::apply(packed(x), norm.scale, norm.shift, up.weight, up.bias, down.weight, down.bias, norm.eps);
}

}  // namespace trireme::ops::on_gpu
