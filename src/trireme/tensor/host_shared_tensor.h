// Tensors in memory that a communicator's peers can read, and tensors as arguments of a communicator.
#pragma once

#include <torch/torch.h>

#include "trireme/comm/communicator.h"

namespace trireme {

/// `count` zeros in the communicator's memory on the device of `options`; in private memory if `comm` is null.
torch::Tensor host_shared_zeros(Communicator* comm, int64_t count, const torch::TensorOptions& options);

/// A tensor with a shape but no memory, which may be set later.
torch::Tensor without_memory(at::IntArrayRef sizes, const torch::TensorOptions& options);

/// A view of a contiguous tensor for a communicator. Throws UsageError for a dtype that cannot be sent.
Data data_of(const torch::Tensor& tensor);

/// Call options for tensors of this device: on a GPU, the call is ordered after its current stream.
CallOptions call_options(const torch::Device& device);

}  // namespace trireme
