// What the operators with kernels of our own share.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string_view>

#include "trireme/models/kernels/kernels.h"

namespace trireme::ops {

/// The kernels for these tensors, null where libtorch's operators are to be used. Undefined tensors do not count.
const model_kernels::Kernels* kernels_for(std::initializer_list<at::Tensor> tensors);

/// What use_plain() and set_deterministic() said last.
bool plain_wanted();
bool is_deterministic();

/// Whether autograd will want a backward through a function of these.
bool wants_gradient(std::initializer_list<at::Tensor> tensors);

/// Whether linear() takes our matrix products for these, and its gradients, each made by itself. `dy` and `x` are
/// contiguous, and so is `weight`.
bool linear_is_ours(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight, bool ours);
at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x, bool ours);
at::Tensor linear_bias_gradient(const at::Tensor& dy, bool ours);

/// Our backwards compute on plain memory: throws Error where autograd asks for a graph of them (create_graph).
void demand_first_order(std::string_view name);

/// The operators of models/functions.h made of libtorch's: for other types and devices, and to compare with.
namespace plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor gelu(const at::Tensor& x);
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);

}  // namespace plain
}  // namespace trireme::ops
