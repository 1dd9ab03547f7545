// Operators that always use libtorch, and libtorch's versions of the others.
#include "trireme/models/functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include "trireme/models/functions_gpu.h"
#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"

namespace trireme::ops {
namespace plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias);
}

at::Tensor gelu(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t uses = q.size(2) / k.size(2);
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const auto repeated = [uses](const at::Tensor& x) {
    return uses == 1 ? x : x.unsqueeze(3).expand({-1, -1, -1, uses, -1}).flatten(2, 3);
  };
  // The result's memory is already [batch, seq, heads, head_dim], so transposing it back copies nothing.
  return at::scaled_dot_product_attention(heads_first(q), heads_first(repeated(k)), heads_first(repeated(v)), {}, 0.0,
                                          /*is_causal=*/true)
      .transpose(1, 2)
      .flatten(2);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.flatten(0, -2).to(at::kFloat), target.flatten());
}

}  // namespace plain

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (on_mesh::serves({gate})) return on_mesh::swiglu(gate, up);
  return on_gpu::serves(gate) ? on_gpu::swiglu(gate, up) : at::silu(gate) * up;
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (on_mesh::serves({x})) return on_mesh::layer_norm(x, weight, bias, eps);
  if (on_gpu::serves(x)) {
    if (const auto y = on_gpu::layer_norm(x, {weight, bias, eps}); y.defined()) return y;
  }
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (on_mesh::serves({x})) return on_mesh::rms_norm(x, weight, eps);
  if (on_gpu::serves(x)) {
    if (const auto y = on_gpu::rms_norm(x, weight, eps); y.defined()) return y;
  }
  const auto wide = x.to(at::kFloat);
  return weight * (wide * at::rsqrt(wide.square().mean(-1, true) + eps)).to(x.scalar_type());
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (on_gpu::serves(x)) return on_gpu::rotate(x, cosine, sine);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
}

at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor&, int64_t, int64_t)>& f) {
  return on_mesh::serves({qkv}) ? on_mesh::by_heads(qkv, heads, kv_heads, f) : f(qkv, heads, kv_heads);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions) {
  if (on_mesh::serves({table})) return on_mesh::embedding(tokens, table, positions);
  if (on_gpu::serves(table)) return on_gpu::embedding(tokens, table, positions);
  const auto rows = at::embedding(table, tokens);
  return positions.defined() ? rows + positions.narrow(0, 0, tokens.size(-1)) : rows;
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target) {
  if (on_mesh::serves({x, weight})) return on_mesh::linear_cross_entropy(x, weight, target);
  if (on_gpu::serves(x)) {
    if (const auto loss = on_gpu::linear_cross_entropy(x, weight, target); loss.defined()) return loss;
  }
  return ops::cross_entropy(ops::linear(x, weight), target);
}

at::Tensor attention_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                           const LinearParameters& output, int64_t heads) {
  if (!on_mesh::serves({x}) && on_gpu::serves(x)) {
    if (const auto y = on_gpu::attention_block(x, norm, qkv, output, heads); y.defined()) return y;
  }
  const auto inside = ops::linear(ops::layer_norm(x, norm.scale, norm.shift, norm.eps), qkv.weight, qkv.bias);
  return x + ops::linear(causal_attention(inside, heads, heads), output.weight, output.bias);
}

at::Tensor mlp_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                     const LinearParameters& down) {
  if (!on_mesh::serves({x}) && on_gpu::serves(x)) {
    if (const auto y = on_gpu::mlp_block(x, norm, up, down); y.defined()) return y;
  }
  const auto inside = ops::gelu(ops::linear(ops::layer_norm(x, norm.scale, norm.shift, norm.eps), up.weight, up.bias));
  return x + ops::linear(inside, down.weight, down.bias);
}

}  // namespace trireme::ops
