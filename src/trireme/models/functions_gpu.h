// The operators of models/functions.h on our GPU kernels. In a build without CUDA none of them serves.
#pragma once

#include "trireme/base/philox.h"
#include "trireme/models/functions.h"

namespace trireme::ops::on_gpu {

/// Whether our kernels take this tensor: on a GPU, float32, float16 or bfloat16, and not told otherwise (use_plain).
bool serves(const at::Tensor& x);

/// Whether algorithms may be chosen by timing them.
void choose_by_timing(bool on);

// To be called where serves() says so. They answer an undefined tensor for shapes or types that they do not serve.
at::Tensor layer_norm(const at::Tensor& x, const NormParameters& norm);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Element i is dropped where uniform number first + i is below p; else it is divided by 1 - p.
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
