// Helpers of the operators that have our own kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>

#include "trireme/models/kernels/kernels.h"

namespace trireme::ops {

/// The kernels for these tensors; null if libtorch's operators are to be used. Undefined tensors are ignored.
const model_kernels::Kernels* kernels_for(std::initializer_list<at::Tensor> tensors);

/// The last values given to use_plain() and set_deterministic().
bool plain_wanted();
bool is_deterministic();

/// Whether autograd needs a backward for a function of these tensors.
bool wants_gradient(std::initializer_list<at::Tensor> tensors);

/// Whether linear() uses our matmul for these tensors; below, its three gradients separately. `dy`, `x` and `weight`
/// must be contiguous.
bool linear_is_ours(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight, bool ours);
at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x, bool ours);
at::Tensor linear_bias_gradient(const at::Tensor& dy, bool ours);

/// Throws Error if autograd wants a graph of a backward (create_graph): ours compute on plain memory.
void demand_first_order(std::string_view name);

/// The operators of models/functions.h built from libtorch's, for other dtypes and devices, and for comparisons.
namespace plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor gelu(const at::Tensor& x);
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

}  // namespace plain
}  // namespace trireme::ops
