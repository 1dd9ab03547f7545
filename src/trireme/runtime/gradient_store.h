// Where gradients go: flat copies ("slots") cut into groups that travel together, filled by hooks on the parameters.
//
//   backward ──hook──▶ slot (set or added) ──group full──▶ the caller: sum slots, start the all-reduce
//
// Autograd's own `+=` would sum in its own order, so a parameter's gradient is taken out of `.grad` as soon as it is
// there, in one pass, into its place in the slot. Groups are filled in the order of the backward pass: the last
// parameters first. Every parameter starts at a multiple of 64 bytes. Of a mesh tensor, the slot holds this rank's
// part: what the ranks of its mesh must add or move is done first. Of a sharded group, each replica gets its part of
// the sum, its *shard*: in its place in slot 0, or, where the whole is not kept, in memory of its own, while the
// whole lies in a buffer that many groups use in turn.
//
// Owner: the runtime, or a DataParallel wrapper. It must outlive every backward pass of its parameters; the destructor
// takes the hooks off. Threads: the one that runs backward(). Fails with UsageError in the constructor only.
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

/// A leaf tensor whose gradient is kept. Several may use one parameter's memory.
struct GradientSource {
  std::string name;
  torch::Tensor leaf;
  bool sharded = false;  ///< each replica gets its part of the sum
  bool alone = false;    ///< where it is sharded: in a group of its own
  int unit = 0;          ///< where groups are closed between units: which one it belongs to
  bool again = false;    ///< another store has the same leaf, and is filled at other times
};

struct GradientStoreOptions {
  int num_slots = 1;
  int num_host_shared_slots = 1;   ///< the first slots lie in the communicator's memory, where peers can read them
  int64_t bucket_bytes = 4 << 20;  ///< groups are closed when they have reached this
  int64_t first_bucket_bytes = 1 << 20;  ///< the first one is short, so that communication begins early
  torch::ScalarType type = torch::kFloat32;
  bool by_unit = false;     ///< sharded groups are closed between units only
  int num_shards = 1;       ///< of what is sharded
  int own_shard = 0;        ///< of this rank
  bool keeps_whole = true;  ///< false: of sharded groups, only the shard stays; slots are set once a step
};

/// How a store lays out its sources.
FlatLayout layout_of(const std::vector<GradientSource>& sources, const GradientStoreOptions& options);

class GradientStore {
 public:
  /// `sources` in the order of the forward pass. `comm` may be null: then all memory is the process's own.
  GradientStore(Communicator* comm, std::vector<GradientSource> sources, const GradientStoreOptions& options);
  ~GradientStore();
  GradientStore(const GradientStore&) = delete;

  /// From now on gradients go to `slot`. `ready` is called with each group, in order, once it and all before it are
  /// complete: the order is the same on all ranks whatever the order in which their gradients appear.
  void begin(int slot, bool add, std::function<void(int group)> ready = {});
  /// After backward(): sources that got no gradient count as zero, and the groups that wait for them are ready.
  void end();

  /// Where the slots lie: where the parameters do.
  torch::Device device() const { return device_; }
  const FlatLayout& layout() const { return layout_; }
  int num_groups() const { return static_cast<int>(layout_.groups().size()); }
  bool keeps_whole() const { return keeps_whole_; }
  bool is_sharded(int group) const { return layout_.groups()[static_cast<size_t>(group)].sharded; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  /// A group of a slot, flat. Undefined where it is not kept and not being filled.
  torch::Tensor group(int slot, int group) const;
  /// Of a sharded group: this rank's part of the sum, flat.
  torch::Tensor shard(int group) const { return shards_[static_cast<size_t>(group)]; }
  /// Where the parts of a sharded group begin, and the end of the last.
  const std::vector<int64_t>& cuts(int group) const { return cuts_[static_cast<size_t>(group)]; }
  /// A sharded group of slot 0 that is full. Where the whole is not kept, its buffer goes with it, until give_back().
  torch::Tensor take_out(int group);
  void give_back(const torch::Tensor& whole);
  /// Called where the buffer of a group is in use: must lead to a give_back(), or say that nothing is on its way.
  std::function<bool()> on_full;
  /// slot += from, in one group.
  void add_slot(int group, int slot, int from);
  /// The gradient of a source in a slot, in the shape of its leaf (of this rank's part of it).
  torch::Tensor gradient(int slot, size_t source) const;
  const std::vector<GradientSource>& sources() const { return sources_; }
  int group_of(size_t source) const { return layout_.places()[source].group; }
  /// Which sources lie where in each group.
  std::vector<GroupLayout> group_layouts() const;
  /// Number of elements of a slot, with the gaps of alignment.
  int64_t size() const { return layout_.size(); }
  /// Of the sums: slot 0 and shards; and of what is there to make them: partial sums, groups on their way.
  size_t num_bytes() const;
  size_t buffer_bytes() const;
  /// Of num_bytes(), those of one source.
  size_t bytes_of(size_t source) const;

  /// Called with every gradient when it arrives, before it is stored: to unscale, to look for what is not finite.
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
  std::vector<std::vector<torch::Tensor>> slots_;  ///< by slot and group
  std::vector<std::vector<int64_t>> cuts_;         ///< of sharded groups
  std::vector<torch::Tensor> shards_;              ///< of sharded groups
  GroupBuffers buffers_;                           ///< for sharded groups that are not kept
  size_t num_turns_ = 2;                           ///< in these, but for what is alone in its group
  size_t own_shard_ = 0;

  bool active_ = false;
  int slot_ = 0;
  bool add_ = false;
  int next_ready_ = 0;
  std::vector<bool> filled_;  ///< sources
  std::vector<int> missing_;  ///< sources of each group
  std::function<void(int)> ready_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace trireme
