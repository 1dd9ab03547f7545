// Memory for rarely used tensors, such as master weights, optimizer state, and weights of layers that are not running.
// It is a file, whose pages the system keeps in memory while there is room and writes out when there is not.
//
// Owner: the caller; each tensor keeps its file mapped. The file is unlinked as soon as it exists, so nothing is left
// behind whatever happens. Threads: any. Fails with UsageError if the folder cannot be written or has no room: all of
// it is reserved at once.
#pragma once

#include <torch/torch.h>

#include <string>

namespace trireme {

/// Returns `count` zeros in a file in `folder`; in plain memory if `folder` is empty.
torch::Tensor offloaded_zeros(const std::string& folder, int64_t count, torch::ScalarType type = torch::kFloat32);

}  // namespace trireme
