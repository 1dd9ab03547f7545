// The operators of models/functions.h made of libtorch's: for other types and devices, and to compare with.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::ops::plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor gelu(const at::Tensor& x);
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

}  // namespace trireme::ops::plain
