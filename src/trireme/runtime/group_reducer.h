// Sums gradient groups over all ranks, along the program's tree, while the backward pass goes on.
//
// Owner: Executor, DataParallel or FullyShard. Threads: one. Blocking: finish() and finish_first(), each wait with the
// communicator's timeout. Fails with CommError.
//
// Gradients may be sent in a shorter dtype than they are kept in. Of a sharded group, each replica gets its part of the
// sum; with several shard groups (HSDP), the sum within a shard group comes first, then the sum over shard groups.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/compressed_reducer.h"
#include "trireme/program/instruction.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {

/// Replaces the all-reduce of a group, for compression, say. It gets the group's number and its sum over this rank's
/// micro-batches; when the handle is done, `values` must hold the sum over all ranks. A hook that is done on return
/// gives an empty handle.
using ReduceHook = std::function<Handle(int group, torch::Tensor values, Communicator& comm)>;

/// Destination of a sharded group's sum, of which each rank gets a part.
struct ShardedSum {
  Communicator* shard_group = nullptr;  ///< ranks that hold the shards; null: the group is not sharded
  Communicator* copies = nullptr;       ///< ranks with the same shard in other shard groups; null: one group
  const std::vector<int64_t>* cuts = nullptr;
  torch::Tensor shard;                 ///< destination of this rank's part
  bool add = false;                    ///< whether to add to `shard` instead of overwriting it
  bool single = false;                 ///< whether each rank has one partial sum, whatever the program's tree
  std::function<void()> on_done = {};  ///< called when the sum is in `shard`
};

/// For a sharded group of `store` that was taken out as `whole`: its shard gets the sum, then `whole` is given back.
ShardedSum sharded_sum(GradientStore& store, int group, const torch::Tensor& whole, Communicator& shard_group);

class GroupReducer {
 public:
  /// `comm` may be null if the program has one rank. Unless `ordered`, a direct sum may use any order that is faster.
  GroupReducer(Communicator* comm, CrossRankSum across, torch::ScalarType travel_type, bool ordered = true);

  /// Starts the sum of a group whose partial sums are in `slots`; the result goes to slots[0], or to the shard.
  /// `may_shorten`: these are gradients, which may be compressed or sent in the travel type; anything else is sent as
  /// it is.
  void start(int group, std::vector<torch::Tensor> slots, bool may_shorten = true, ShardedSum sharded = {});
  /// Waits for all started sums, in order.
  void finish();
  /// Waits for the oldest started sum. Returns false if there is none.
  bool finish_first();
  void set_hook(ReduceHook hook) { hook_ = std::move(hook); }
  /// Sums gradients, but nothing else, with this compressor from now on. Its groups are numbered like those of start(),
  /// and its processor must work in their memory.
  void set_compressor(std::unique_ptr<CompressedReducer> compressor) { compressor_ = std::move(compressor); }
  /// Null if gradients are not compressed.
  CompressedReducer* compressor() { return compressor_.get(); }
  /// Sets the step that seeds the compressor's random numbers and counts its warm-up.
  void set_step(uint64_t step) { step_ = step; }
  /// Bytes of send buffers for gradients that are kept in another dtype.
  size_t buffer_bytes() const;
  /// Bytes handed to the communicator so far, plus what the compressor has sent; not what a hook sends.
  size_t bytes_reduced() const { return bytes_ + (compressor_ ? compressor_->report().bytes_sent : 0); }

 private:
  struct Pending {
    Handle handle;
    std::vector<torch::Tensor> slots;
    torch::Tensor travelling;   ///< send buffer or result; undefined if slots[0] itself is reduced
    bool has_partials = false;  ///< whether sum_partials() still has to sum `slots`
    bool has_whole = false;     ///< whether a hook or the compressor leaves the whole sum in slots[0]
    ShardedSum sharded = {};
  };
  void start_compressed(int group, const torch::Tensor& values);
  Handle start_direct(int group, Pending& pending, bool may_shorten);
  void complete(Pending& pending);
  void add_own_partials(std::vector<torch::Tensor>& slots) const;
  void sum_partials(Pending& pending);

  Communicator* comm_;
  CrossRankSum across_;
  torch::ScalarType travel_type_;
  bool ordered_;
  ReduceHook hook_;
  std::unique_ptr<CompressedReducer> compressor_;
  uint64_t step_ = 0;
  std::deque<Pending> pending_;
  std::vector<torch::Tensor> travel_buffers_;
  size_t bytes_ = 0;
};

}  // namespace trireme
