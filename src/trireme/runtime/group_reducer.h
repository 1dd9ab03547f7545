// Sums a group over all ranks, along the program's tree, while the backward pass goes on.
//
// Owner: the runtime. Threads: one. Blocking: finish() only, each wait with the communicator's timeout. Fails with
// CommError. Gradients may travel in a shorter type than the one they are kept in.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/compressed_reducer.h"
#include "trireme/program/instruction.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {

/// What happens to a group instead of the all-reduce: compression, for instance. It gets the group's number and its
/// sum over this rank's micro-batches, and leaves the sum over all ranks there when the handle is done. A hook that has
/// done everything returns an empty handle.
using ReduceHook = std::function<Handle(int group, torch::Tensor values, Communicator& comm)>;

class GroupReducer {
 public:
  /// `comm` may be null where the program has one rank.
  /// Unless `ordered`, a direct sum may follow any order that is faster.
  GroupReducer(Communicator* comm, CrossRankSum across, torch::ScalarType travel_type, bool ordered = true);

  /// Starts the sum of a group whose partial sums lie in `slots`; the result will lie in slots[0]. What is no gradient
  /// travels whole: without `may_shorten`.
  void start(int group, std::vector<torch::Tensor> slots, bool may_shorten = true);
  /// Waits for what was started, in order.
  void finish();
  void set_hook(ReduceHook hook) { hook_ = std::move(hook); }
  /// Gradients, but nothing else, go through this one from now on; its groups are numbered as those of start().
  void set_compressor(std::unique_ptr<CompressedReducer> compressor) { compressor_ = std::move(compressor); }
  /// Null where gradients travel whole.
  CompressedReducer* compressor() { return compressor_.get(); }
  /// Names the compressor's random numbers, and its place in the warm-up.
  void set_step(uint64_t step) { step_ = step; }
  /// Bytes of gradients handed to the communicator so far; compressed, those that this rank has sent.
  size_t bytes_reduced() const { return bytes_ + (compressor_ ? compressor_->report().bytes_sent : 0); }

 private:
  struct Pending {
    Handle handle;
    std::vector<torch::Tensor> slots;
    torch::Tensor travelling;   ///< undefined where slots[0] itself travels
    bool has_partials = false;  ///< to be summed by finish()
  };
  torch::Tensor travel_buffer(int group, const torch::Tensor& values);
  void add_own_partials(std::vector<torch::Tensor>& slots) const;
  void sum_partials(std::vector<torch::Tensor>& slots);

  Communicator* comm_;
  CrossRankSum across_;
  torch::ScalarType travel_type_;
  bool ordered_;
  ReduceHook hook_;
  std::unique_ptr<CompressedReducer> compressor_;
  uint64_t step_ = 0;
  std::vector<Pending> pending_;
  std::vector<torch::Tensor> travel_buffers_;
  size_t bytes_ = 0;
};

}  // namespace trireme
