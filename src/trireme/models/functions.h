// The operators that take a transformer's time, each in one place: what is fused or replaced is replaced here.
// Threads: all. All of them are differentiable. A namespace of their own, since libtorch has the same names.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// With the approximation by tanh, as GPT-2 has it.
at::Tensor gelu(const at::Tensor& x);
/// silu(gate) · up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Over the last dim.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
/// Over the last dim; computed in float32 whatever the type of x.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Each token sees itself and those before it. q is [batch, seq, heads, head_dim], k and v have as many heads or a
/// divisor of them (head i uses theirs i / (heads / kv_heads)); the result is [batch, seq, heads · head_dim].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
/// Rotary positions of x [batch, seq, heads, head_dim]: dim i turns with dim i + head_dim / 2, the convention of
/// Hugging Face. `cosine` and `sine` are [seq, 1, head_dim / 2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace trireme::ops
