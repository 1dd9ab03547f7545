// Collectives on tensors, and the two broadcasts that begin a data-parallel run: weights and optimizer state.
//
// All are collective: every rank calls them in the same order. They block until done or until the communicator's
// timeout; start_* return at once, and the result is ready after TensorHandle::wait(). They fail with UsageError (a
// dtype that cannot be summed, shapes that do not match, a GPU tensor while no GPU is attached to the communicator) or
// CommError.
#pragma once

#include <torch/torch.h>

#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

/// An operation in flight on a tensor. Keep the handle, and leave the tensor untouched, until wait() has returned. One
/// thread at a time.
class TensorHandle {
 public:
  TensorHandle(Handle handle, torch::Tensor result, torch::Tensor travelling)
      : handle_(std::move(handle)), result_(std::move(result)), travelling_(std::move(travelling)) {}
  bool test() { return handle_.test(); }
  /// Blocks, then returns the result: for broadcast and all_reduce, the tensor that was given.
  torch::Tensor wait();

 private:
  Handle handle_;
  torch::Tensor result_;
  torch::Tensor travelling_;  ///< contiguous copy of the tensor, or the tensor itself
  torch::Tensor operand_;     ///< input that must stay alive, if it is not the result
  friend TensorHandle start_all_gather(Communicator& comm, const torch::Tensor& tensor);
};

/// Broadcast in place, for any dtype and strides.
void broadcast(Communicator& comm, const torch::Tensor& tensor, int root = 0);
TensorHandle start_broadcast(Communicator& comm, const torch::Tensor& tensor, int root = 0);

/// Reduce in place, for any strides. all_reduce() returns the tensor.
torch::Tensor all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
TensorHandle start_all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

/// Concatenate the tensors of all ranks along dim 0, where lengths may differ; other dims and the dtype must agree.
/// start_all_gather() blocks while lengths are exchanged.
torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor);
TensorHandle start_all_gather(Communicator& comm, const torch::Tensor& tensor);

/// Broadcasts parameters and buffers. Throws UsageError on all ranks if names, shapes or dtypes differ, naming the
/// first difference.
void broadcast_parameters(Communicator& comm, const torch::nn::Module& module, int root = 0);

/// Broadcasts state (moments, step counts) and options (learning rates) of any libtorch optimizer. Other ranks need not
/// have state yet. Throws UsageError on all ranks if number, shapes or dtypes of the parameters differ.
void broadcast_optimizer_state(Communicator& comm, torch::optim::Optimizer& optimizer, int root = 0);

/// Describes a tensor in one line, such as "name [2, 3] Float".
std::string describe(const std::string& name, const torch::Tensor& tensor);

}  // namespace trireme
