// The operators that take most of a transformer's time, one function each, so that fused or replaced versions have one
// place.
//
// For float32 on a CPU with AVX2 or better they use our kernels (models/kernels) if libtorch has one thread per
// process, as with one rank per core; for tensors on a GPU they use ours, too (models/cuda); in all other cases
// libtorch's operators. Either way the same input gives the same bits every time. All are differentiable once:
// differentiating one of our backward functions throws Error. Threads: all. They have their own namespace because
// libtorch uses the same names.
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

/// x · weightᵀ + bias; weight is [out, in], bias may be undefined. With our kernels, the bits of a row of the result do
/// not depend on the other rows.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
/// Several linear layers of the same input, which on a mesh is gathered once, and whose gradient is summed once.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
/// With the tanh approximation, as in GPT-2.
at::Tensor gelu(const at::Tensor& x);
/// silu(gate) · up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Over the last dim.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
/// Over the last dim; computed in float32 whatever the dtype of x.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Each token attends to itself and to earlier ones. q is [batch, seq, heads, head_dim]; k and v have as many heads or
/// a divisor of that (head i uses k and v of head i / (heads / kv_heads)); the result is [batch, seq, heads ·
/// head_dim].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
/// The same with q, k and v packed: [batch, seq, (heads + 2 kv_heads) · head_dim]. They are not copied.
at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, int64_t kv_heads);
/// f(qkv, heads, kv_heads), for an f that treats heads independently and returns [batch, seq, heads · head_dim]. For a
/// mesh tensor each rank computes some of the heads: f gets plain tensors and fewer heads.
at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor& qkv, int64_t heads, int64_t kv_heads)>& f);
/// Rotary positions of x [batch, seq, heads, head_dim]: dim i is rotated with dim i + head_dim / 2, Hugging Face's
/// convention. `cosine` and `sine` are [seq, 1, head_dim / 2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);
/// Mean of −log softmax(logits)[target] over the rows, float32: logits [batch, …, classes], int64 target [batch, …].
/// Rows whose target is −100 are ignored.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

/// Cross entropy of x · weightᵀ; our GPU kernels never hold all logits at once.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target);
/// Rows of `table` [vocab, width] for tokens [batch, seq], plus the first seq rows of `positions` if defined.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions = {});

// The two halves of a GPT-2 block, each a single autograd node on a GPU.
/// x + output(causal_attention(qkv(layer_norm(x)))).
at::Tensor attention_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                           const LinearParameters& output, int64_t heads);
/// x + down(gelu(up(layer_norm(x)))).
at::Tensor mlp_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                     const LinearParameters& down);

/// On GPUs: whether sums have a fixed order, so that bits repeat (the default); off: the fastest algorithm is used.
void set_deterministic(bool on);

/// Makes all operators use libtorch's, for tests and benchmarks; calls already made keep their backward.
void use_plain(bool plain);

}  // namespace trireme::ops
