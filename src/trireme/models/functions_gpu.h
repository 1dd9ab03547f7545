// The operators of models/functions.h on our GPU kernels. In a build without CUDA, serves() is always false.
#pragma once

#include "trireme/base/philox.h"
#include "trireme/models/functions.h"

namespace trireme::ops::on_gpu {

/// Whether our kernels can be used: x is on a GPU, in float32, float16 or bfloat16, and use_plain() is off.
bool serves(const at::Tensor& x);

/// Whether algorithms may be chosen by timing them.
void choose_by_timing(bool on);

// Call these only if serves() is true. They return an undefined tensor for shapes or dtypes that they do not support.
at::Tensor layer_norm(const at::Tensor& x, const NormParameters& norm);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Drops element i if uniform number first + i is below p; otherwise divides it by 1 - p.
at::Tensor dropout(const at::Tensor& x, const Philox& numbers, uint64_t first, double p);
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions);
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target);
/// Only for weights that are used in 8 bits (models/fp8.h).
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
at::Tensor attention_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                           const LinearParameters& output, int64_t heads);
at::Tensor mlp_block(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                     const LinearParameters& down);

}  // namespace trireme::ops::on_gpu
