// Memory for what is touched seldom, such as master weights, optimizer state, and weights of layers whose turn is to
// come: in a file, whose pages the system keeps in memory while there is room and writes out when there is not.
//
// Owner: whoever asks for tensors; each keeps the file open while it lives. The file has no name any more once it is
// there, so that nothing is left behind, whatever happens. Threads: any. Fails with UsageError where the folder cannot
// be written or has no room: all of it is reserved at once.
#pragma once

#include <torch/torch.h>

#include <string>

namespace trireme {

/// `count` zeros in a file of `folder`; in plain memory where that is empty.
torch::Tensor offloaded_zeros(const std::string& folder, int64_t count, torch::ScalarType type = torch::kFloat32);

}  // namespace trireme
