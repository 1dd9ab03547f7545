// Tensors in memory that a communicator's peers reach, and how tensors are handed to a communicator.
#pragma once

#include <torch/torch.h>

#include "trireme/comm/communicator.h"

namespace trireme {

/// `count` zeros in the communicator's memory on the device of `options`; the process's own where `comm` is null.
torch::Tensor host_shared_zeros(Communicator* comm, int64_t count, const torch::TensorOptions& options);

/// A tensor whose memory is set later, or never: a stand-in with the right shape.
torch::Tensor without_memory(at::IntArrayRef sizes, const torch::TensorOptions& options);

/// A view of a contiguous tensor for a communicator. Throws UsageError for a type that cannot travel.
Data data_of(const torch::Tensor& tensor);

/// The options of a call on tensors of this device: those on a GPU were produced on its current stream.
CallOptions call_options(const torch::Device& device);

}  // namespace trireme
