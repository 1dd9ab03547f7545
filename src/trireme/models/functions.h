// The operators that take a transformer's time, each in one place: what is fused or replaced is replaced here.
//
// float32 on a CPU with AVX2 or more takes our kernels (models/kernels) where libtorch has one thread a process, as in
// a rank for each core; tensors on a GPU take ours too (models/cuda); all else takes libtorch's operators. Both give
// the same bits for the same input every time. All are differentiable once: a backward through our backward throws
// Error. Threads: all. A namespace of their own, since libtorch has the same names.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trireme::ops {

struct NormParameters {
  at::Tensor scale, shift;
  double eps = 1e-5;
};
struct LinearParameters {
  at::Tensor weight, bias;
};

/// x · weightᵀ + bias; weight is [out, in], the bias may be undefined. With our kernels, the bits of a row of the
/// result do not depend on the other rows.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
/// Several of one input, which on a mesh is gathered once, and whose gradient is summed once.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
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
/// The same with q, k and v side by side: [batch, seq, (heads + 2 kv_heads) · head_dim]. Nothing is copied for it.
at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, int64_t kv_heads);
/// f(qkv, heads, kv_heads), which treats heads apart and gives [batch, seq, heads · head_dim]. Of a mesh tensor each
/// rank computes some heads: f then gets plain tensors and fewer heads.
at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor& qkv, int64_t heads, int64_t kv_heads)>& f);
/// Rotary positions of x [batch, seq, heads, head_dim]: dim i turns with dim i + head_dim / 2, the convention of
/// Hugging Face. `cosine` and `sine` are [seq, 1, head_dim / 2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);
/// Mean over the rows of −log softmax(logits)[target], float32: logits [batch, …, classes], target [batch, …] of int64.
/// Rows whose target is −100 do not count.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// The same of x · weightᵀ: logits are never held whole where our GPU kernels compute it.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target);
/// Rows of `table` [vocab, width] for tokens [batch, seq], plus the first seq rows of `positions` where that is
/// defined.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions = {});

// The two halves of a GPT-2 block, each one node of the graph on a GPU.
/// x + output(causal_attention(qkv(layer_norm(x)))).
at::Tensor attention_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                           const LinearParameters& output, int64_t heads);
/// x + down(gelu(up(layer_norm(x)))).
at::Tensor mlp_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                     const LinearParameters& down);

/// On GPUs, whether sums keep their order, so that bits repeat (the default); off, what is faster goes first.
void set_deterministic(bool on);

/// Makes all operators libtorch's, for tests and benchmarks that compare; operators already called keep their backward.
void use_plain(bool plain);

}  // namespace trireme::ops
