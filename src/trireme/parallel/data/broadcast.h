// Tensors through a communicator, and the two broadcasts that begin a data-parallel run: weights and optimizer state.
//
// All are collective: every rank calls them in the same order. They block until done or until the communicator's
// timeout; start_* return at once, and the result is there after TensorHandle::wait(). They fail with UsageError (a
// type that cannot be summed, shapes that do not fit, memory that is not the CPU's) or CommError.
#pragma once

#include <torch/torch.h>

#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

/// A tensor under way. Keep it, and leave the tensor untouched, until wait() has returned. One thread at a time.
class TensorHandle {
 public:
  TensorHandle(Handle handle, torch::Tensor result, torch::Tensor travelling)
      : handle_(std::move(handle)), result_(std::move(result)), travelling_(std::move(travelling)) {}
  bool test() { return handle_.test(); }
  /// The result: for broadcast and all_reduce the tensor that was given.
  torch::Tensor wait();

 private:
  Handle handle_;
  torch::Tensor result_;
  torch::Tensor travelling_;  ///< its contiguous copy, or itself
  torch::Tensor operand_;     ///< what is only read
  friend TensorHandle start_all_gather(Communicator& comm, const torch::Tensor& tensor);
};

/// In place, of any type and any strides.
void broadcast(Communicator& comm, const torch::Tensor& tensor, int root = 0);
TensorHandle start_broadcast(Communicator& comm, const torch::Tensor& tensor, int root = 0);

/// In place. Returns the tensor.
torch::Tensor all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
TensorHandle start_all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

/// The tensors of all ranks, one after another along dim 0, which may differ in length; the other dims and the type
/// must agree. start_all_gather blocks for the lengths.
torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor);
TensorHandle start_all_gather(Communicator& comm, const torch::Tensor& tensor);

/// Parameters and buffers. Throws on all ranks where names, shapes or types differ, and names the first that does.
void broadcast_parameters(Communicator& comm, const torch::nn::Module& module, int root = 0);

/// State (moments, step counts) and options (learning rates) of any optimizer of libtorch. It works where others have
/// no state yet. Throws on all ranks where the numbers of parameters differ.
void broadcast_optimizer_state(Communicator& comm, torch::optim::Optimizer& optimizer, int root = 0);

/// "name [2, 3] float32": a line of the check above.
std::string describe(const std::string& name, const torch::Tensor& tensor);

}  // namespace trireme
