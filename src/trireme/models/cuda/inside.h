// Helpers of the GPU operators: from tensors to the pointers, types and streams of gpu/.
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

/// Scratch bytes, used in the order of the current stream; freed with the tensor.
at::Tensor scratch(size_t num_bytes, const at::Tensor& like);

/// Contiguous and aligned to 16 bytes, as the kernels' wide loads require.
at::Tensor packed(const at::Tensor& x);

/// Rows of x as a matrix: the product of all dims but the last.
int64_t rows_of(const at::Tensor& x);

/// Uninitialised tensor with the shape of x except for its last dim; dtype as x unless `type` is given.
at::Tensor with_last_dim(const at::Tensor& x, int64_t last, std::optional<at::ScalarType> type = {});

/// Converts a vector to the dtype of `like`: a bias, which the optimizer keeps in float32.
at::Tensor in_type_of(const at::Tensor& vector, const at::Tensor& like);

/// Σ over the rows of x, as a vector in the dtype of `like`.
at::Tensor column_sums(const at::Tensor& x, const at::Tensor& like);

struct Normed {
  at::Tensor y, mean, rstd;
};
Normed apply_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps);

struct NormGradients {
  at::Tensor dx, d_scale, d_shift;
};
/// `residual` is the gradient that bypassed the norm, added to dx; may be undefined.
NormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& scale,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& residual);

// Matmuls; the rows of a matrix are all dims but the last.
/// out = a · b; `more` gives transposes and fused operations.
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, gpu::Matmul more = {});
/// x · weightᵀ with the options of `more`; the result has the dtype of x.
at::Tensor times_weight(const at::Tensor& x, const at::Tensor& weight, gpu::Matmul more = {});
/// dy · weight: the gradient of x.
at::Tensor gradient_of_x(const at::Tensor& dy, const at::Tensor& weight, const gpu::Matmul& more = {});
/// dyᵀ · x: the gradient of the weight.
at::Tensor gradient_of_weight(const at::Tensor& dy, const at::Tensor& x);

/// Causal attention of packed queries, keys and values: qkv is [batch, seq, 3 · heads · head_dim].
struct Attended {
  at::Tensor o;         ///< [batch, seq, heads · head_dim]
  at::Tensor log_sums;  ///< saved for the backward
};
Attended attend(const at::Tensor& qkv, int64_t heads);
/// The gradient of qkv.
at::Tensor attend_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& d_o, int64_t heads);

/// Shape for q, k, v and o as [batch, seq, heads, head_dim], with the last dim contiguous.
gpu::AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o);
gpu::HeadStrides strides_of(const at::Tensor& x);

}  // namespace trireme::ops::on_gpu
