// A list of tensors: what a layer takes and returns, and what pipeline stages send each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trireme {

using Tensors = std::vector<at::Tensor>;

}  // namespace trireme
