// Those operators that are libtorch's everywhere, and libtorch's forms of the others.
#include "trireme/models/functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include "trireme/models/functions_plain.h"

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
  // The result's memory is [batch, seq, heads, head_dim] already: turning it back copies nothing.
  return at::scaled_dot_product_attention(heads_first(q), heads_first(repeated(k)), heads_first(repeated(v)), {}, 0.0,
                                          /*is_causal=*/true)
      .transpose(1, 2)
      .flatten(2);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.flatten(0, -2).to(at::kFloat), target.flatten());
}

}  // namespace plain

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto wide = x.to(at::kFloat);
  return weight * (wide * at::rsqrt(wide.square().mean(-1, true) + eps)).to(x.scalar_type());
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
}

}  // namespace trireme::ops
