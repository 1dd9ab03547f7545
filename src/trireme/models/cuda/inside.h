// What the GPU operators share: from tensors to the pointers, types and streams of gpu/.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "trireme/gpu/attention.h"
#include "trireme/gpu/matmul.h"
#include "trireme/gpu/types.h"
#include "trireme/models/functions_gpu.h"

namespace trireme::ops::on_gpu {

gpu::Type type_of(const at::Tensor& x);
gpu::Stream current_stream();

/// Bytes that belong to the current stream until the tensor goes.
at::Tensor scratch(size_t num_bytes, const at::Tensor& like);

/// Contiguous and starting at a multiple of 16 bytes, as the kernels' wide loads want it.
at::Tensor packed(const at::Tensor& x);

/// Of x as a matrix: all dims but the last.
int64_t rows_of(const at::Tensor& x);

/// Room for a tensor in the shape of x but for its last dim, in the type of x where none is given.
at::Tensor with_last_dim(const at::Tensor& x, int64_t last, std::optional<at::ScalarType> type = {});

/// A vector in the type of `like`: a bias, which the optimizer keeps in float32.
at::Tensor in_type_of(const at::Tensor& vector, const at::Tensor& like);

/// Σ over the rows of x, as a vector in the type of `like`.
at::Tensor column_sums(const at::Tensor& x, const at::Tensor& like);

struct Normed {
  at::Tensor y, mean, rstd;
};
Normed apply_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps);

struct NormGradients {
  at::Tensor dx, d_scale, d_shift;
};
/// `residual`: what went past the norm, added to dx; may be undefined.
NormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& scale,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& residual);

// Products of matrices whose rows are all dims but the last.
/// out = a · b; `more` says what is transposed and what else happens to it.
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, gpu::Matmul more = {});
/// x · weightᵀ, with what `more` asks for; out has the type of x.
at::Tensor times_weight(const at::Tensor& x, const at::Tensor& weight, gpu::Matmul more = {});
/// dy · weight: the gradient of x.
at::Tensor gradient_of_x(const at::Tensor& dy, const at::Tensor& weight, const gpu::Matmul& more = {});
/// dyᵀ · x: the gradient of the weight.
at::Tensor gradient_of_weight(const at::Tensor& dy, const at::Tensor& x);

/// Causal attention of queries, keys and values that lie side by side: qkv is [batch, seq, 3 · heads · head_dim].
struct Attended {
  at::Tensor o;         ///< [batch, seq, heads · head_dim]
  at::Tensor log_sums;  ///< for the backward
};
Attended attend(const at::Tensor& qkv, int64_t heads);
/// The gradient of qkv.
at::Tensor attend_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& d_o, int64_t heads);

/// q, k, v and o as [batch, seq, heads, head_dim], the last dim contiguous.
gpu::AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o);
gpu::HeadStrides strides_of(const at::Tensor& x);

}  // namespace trireme::ops::on_gpu
