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

/// Our backwards compute on plain memory: throws Error where autograd asks for a graph of them (create_graph).
void demand_first_order(std::string_view name);

}  // namespace trireme::ops
