// A list of tensors: what a layer takes and gives, and what travels between the stages of a pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trireme {

using Tensors = std::vector<at::Tensor>;

}  // namespace trireme
