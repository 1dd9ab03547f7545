// Sums a group over all ranks, along the program's tree, while the backward pass goes on.
//
// Owner: the runtime. Threads: one. Blocking: finish() only, each wait with the communicator's timeout. Fails with
// CommError. Gradients may travel in a shorter type than the one they are kept in. Of a sharded group, each replica
// gets its part of the sum; with several shard groups (HSDP), the sum inside a group comes first, then the one over the
// groups.
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

/// What happens to a group instead of the all-reduce: compression, for instance. It gets the group's number and its
/// sum over this rank's micro-batches, and leaves the sum over all ranks there when the handle is done. A hook that has
/// done everything returns an empty handle.
using ReduceHook = std::function<Handle(int group, torch::Tensor values, Communicator& comm)>;

/// A group of whose sum each replica gets a part.
struct ShardedSum {
  Communicator* shard_group = nullptr;  ///< ranks that hold the shards
  Communicator* copies = nullptr;       ///< ranks with the same shard in other groups; null: one group
  const std::vector<int64_t>* cuts = nullptr;
  torch::Tensor shard;                 ///< where this rank's part goes
  bool add = false;                    ///< to what is there already
  bool single = false;                 ///< each rank has one partial sum, whatever the program's tree
  std::function<void()> on_done = {};  ///< when it is there
};

/// For a sharded group of `store` whose whole was taken out: its shard gets the sum, then its buffer is given back.
ShardedSum sharded_sum(GradientStore& store, int group, const torch::Tensor& whole, Communicator& shard_group);

class GroupReducer {
 public:
  /// `comm` may be null where the program has one rank.
  /// Unless `ordered`, a direct sum may follow any order that is faster.
  GroupReducer(Communicator* comm, CrossRankSum across, torch::ScalarType travel_type, bool ordered = true);

  /// Starts the sum of a group whose partial sums lie in `slots`; the result will lie in slots[0]. Anything but a
  /// gradient travels whole: without `may_shorten`.
  void start(int group, std::vector<torch::Tensor> slots, bool may_shorten = true, ShardedSum sharded = {});
  /// Waits for what was started, in order.
  void finish();
  /// Waits for what was started first; false where there is nothing.
  bool finish_first();
  void set_hook(ReduceHook hook) { hook_ = std::move(hook); }
  /// Gradients, but nothing else, go through this one from now on; its groups are numbered as those of start(), and it
  /// works in the memory where they lie.
  void set_compressor(std::unique_ptr<CompressedReducer> compressor) { compressor_ = std::move(compressor); }
  /// Null where gradients travel whole.
  CompressedReducer* compressor() { return compressor_.get(); }
  /// Names the compressor's random numbers, and its place in the warm-up.
  void set_step(uint64_t step) { step_ = step; }
  /// Of memory in which gradients travel that are kept in another type.
  size_t buffer_bytes() const;
  /// Bytes of gradients handed to the communicator so far; compressed, those that this rank has sent.
  size_t bytes_reduced() const { return bytes_ + (compressor_ ? compressor_->report().bytes_sent : 0); }

 private:
  struct Pending {
    Handle handle;
    std::vector<torch::Tensor> slots;
    torch::Tensor travelling;   ///< undefined where slots[0] itself travels
    bool has_partials = false;  ///< to be summed by finish()
    bool has_whole = false;     ///< the sum of a sharded group lies in slots[0]
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
