// Where gradients go: flat copies ("slots"), cut into groups that are reduced at once (buckets), and filled by hooks on
// the parameters.
//
//   backward ──hook──▶ slot (set or added) ──group full──▶ the caller: sum slots, start the all-reduce
//
// Autograd's own `+=` would sum in its own order, so a hook moves a parameter's gradient from `.grad` to its place in
// the slot as soon as it arrives, in one pass. Groups fill in the order of the backward pass, last parameters first.
// Every parameter starts at a multiple of 64 bytes.
//
// For a mesh tensor, the slot holds this rank's part, after the ranks of its mesh have finished pending sums and moves.
// Of a sharded group, each replica gets its part of the sum, its *shard*: at its place in slot 0 or, if the whole is
// not kept, in memory of its own, while the whole only exists in a buffer that many groups use in turn.
//
// Owner: a StageSet. The store must outlive every backward pass of its parameters; the destructor removes the hooks.
// Threads: the one that runs backward(). Fails with UsageError in the constructor only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/group_layout.h"
#include "trireme/runtime/flat_layout.h"
#include "trireme/runtime/group_buffers.h"

namespace trireme {

/// A leaf tensor whose gradient is stored. Several leaves may have the same memory.
struct GradientSource {
  std::string name;
  torch::Tensor leaf;
  bool sharded = false;  ///< whether each replica gets only its part of the sum
  bool alone = false;    ///< whether it has a group of its own; only used if sharded
  int unit = 0;          ///< unit (a layer, say) that it belongs to; only used with `by_unit`
  bool again = false;    ///< whether another store has the same leaf; the two are never active at once
};

struct GradientStoreOptions {
  int num_slots = 1;
  int num_host_shared_slots = 1;         ///< number of slots, from the first, in memory that peers can read
  int64_t bucket_bytes = 4 << 20;        ///< size at which a group is closed
  int64_t first_bucket_bytes = 1 << 20;  ///< the same for the first group: short, so that communication begins early
  torch::ScalarType type = torch::kFloat32;
  bool by_unit = false;     ///< whether sharded groups are closed between units only
  int num_shards = 1;       ///< number of shards of a sharded group
  int own_shard = 0;        ///< index of this rank's shard
  bool keeps_whole = true;  ///< false: sharded groups keep only the shard, and every backward pass overwrites the whole
};

/// The layout that a store gives its sources.
FlatLayout layout_of(const std::vector<GradientSource>& sources, const GradientStoreOptions& options);

class GradientStore {
 public:
  /// `sources` in the order of the forward pass. Without `comm`, all memory is private to the process.
  GradientStore(Communicator* comm, std::vector<GradientSource> sources, const GradientStoreOptions& options);
  ~GradientStore();
  GradientStore(const GradientStore&) = delete;

  /// Directs gradients to `slot` from now on: added to what it holds, or overwriting it. `ready` is called with each
  /// group, in order, once this group and all before it are complete; so the order is the same on all ranks, whatever
  /// the order in which gradients arrive.
  void begin(int slot, bool add, std::function<void(int group)> ready = {});
  /// Call after backward(): sources that got no gradient count as zero, and groups that waited for them become ready.
  void end();

  /// The device of the parameters, and so of the slots.
  torch::Device device() const { return device_; }
  const FlatLayout& layout() const { return layout_; }
  int num_groups() const { return static_cast<int>(layout_.groups().size()); }
  bool keeps_whole() const { return keeps_whole_; }
  bool is_sharded(int group) const { return layout_.groups()[static_cast<size_t>(group)].sharded; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  /// A group of a slot, flat. Undefined if it is not kept and not being filled.
  torch::Tensor group(int slot, int group) const;
  /// This rank's part of the sum of a sharded group, flat.
  torch::Tensor shard(int group) const { return shards_[static_cast<size_t>(group)]; }
  /// Begin of each shard within a sharded group, and the end of the last.
  const std::vector<int64_t>& cuts(int group) const { return cuts_[static_cast<size_t>(group)]; }
  /// Returns a full sharded group of slot 0. If the whole is not kept, the caller gets its buffer, too, until
  /// give_back().
  torch::Tensor take_out(int group);
  void give_back(const torch::Tensor& whole);
  /// Called while the buffer that a group needs is in use. Finishes a pending sum, which ends in a give_back(), and
  /// returns true; or returns false if none is pending.
  std::function<bool()> on_full;
  /// Adds slot `from` to `slot`, in one group.
  void add_slot(int group, int slot, int from);
  /// The gradient of a source in a slot, in the shape of its leaf (of this rank's part of it).
  torch::Tensor gradient(int slot, size_t source) const;
  const std::vector<GradientSource>& sources() const { return sources_; }
  int group_of(size_t source) const { return layout_.places()[source].group; }
  /// The place of each source in its group.
  std::vector<GroupLayout> group_layouts() const;
  /// Number of elements of a slot, including alignment padding.
  int64_t size() const { return layout_.size(); }
  /// Bytes of the sums (slot 0 and shards); and of what making them takes: partial sums, and groups in flight.
  size_t num_bytes() const;
  size_t buffer_bytes() const;
  /// Bytes of num_bytes() that belong to one source.
  size_t bytes_of(size_t source) const;

  /// Called with every gradient when it arrives, before it is stored: to unscale it, or to check that it is finite.
  std::function<void(size_t source, const torch::Tensor& gradient)> on_gradient;

 private:
  class Hook;

  bool is_kept(int group) const { return keeps_whole_ || !is_sharded(group); }
  void make_slots(Communicator* comm, const GradientStoreOptions& options);
  void acquire(int group);
  size_t turn_of(int group) const;
  void take(size_t source, const torch::Tensor& leaf);
  void release_ready_groups();

  std::vector<GradientSource> sources_;
  const FlatLayout layout_;
  const bool keeps_whole_;
  torch::Device device_{torch::kCPU};
  std::vector<std::vector<torch::Tensor>> slots_;  ///< indexed by slot and group
  std::vector<std::vector<int64_t>> cuts_;         ///< cuts() of sharded groups; empty for others
  std::vector<torch::Tensor> shards_;              ///< shard() of sharded groups; undefined for others
  GroupBuffers buffers_;                           ///< memory of sharded groups that are not kept
  size_t num_turns_ = 2;                           ///< turns in buffers_; `alone` groups have one more of their own
  size_t own_shard_ = 0;

  bool active_ = false;
  int slot_ = 0;
  bool add_ = false;
  int next_ready_ = 0;
  std::vector<bool> filled_;  ///< whether each source has its gradient
  std::vector<int> missing_;  ///< number of sources of each group without one
  std::function<void(int)> ready_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace trireme
