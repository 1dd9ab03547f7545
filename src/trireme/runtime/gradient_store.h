// Where gradients go: flat copies ("slots") cut into groups that travel together, filled by hooks on the parameters.
//
//   backward ──hook──▶ slot (set or added) ──group full──▶ the caller: sum slots, start the all-reduce
//
// Autograd's own `+=` would sum in its own order, so a parameter's gradient is taken out of `.grad` as soon as it is
// there, in one pass, into its place in the slot. Groups are filled in the order of the backward pass: the last
// parameters first. Every parameter starts at a multiple of 64 bytes. Of a mesh tensor, the slot holds this rank's
// part: what the ranks of its mesh must add or move is done first.
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

namespace trireme {

/// A leaf tensor whose gradient is kept. Several may share one parameter's memory.
struct GradientSource {
  std::string name;
  torch::Tensor leaf;
};

struct GradientStoreOptions {
  int num_slots = 1;
  int num_shared_slots = 1;             ///< the first slots lie in the communicator's memory, where peers can read them
  int64_t group_bytes = 4 << 20;        ///< groups are closed when they have reached this
  int64_t first_group_bytes = 1 << 20;  ///< the first one is short, so that communication begins early
  torch::ScalarType type = torch::kFloat32;
};

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
  torch::Device device() const { return slots_[0].device(); }
  int num_groups() const { return static_cast<int>(groups_.size()); }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  /// A group of a slot, flat.
  torch::Tensor group(int slot, int group) const;
  /// slot += from, in one group.
  void add_slot(int group, int slot, int from);
  /// The gradient of a source in a slot, in the shape of its leaf (of this rank's part of it).
  torch::Tensor gradient(int slot, size_t source) const;
  const std::vector<GradientSource>& sources() const { return sources_; }
  int group_of(size_t source) const { return places_[source].group; }
  /// Which sources lie where in each group.
  std::vector<GroupLayout> group_layouts() const;
  /// Number of elements of a slot, with the gaps of alignment.
  int64_t size() const { return size_; }
  size_t num_bytes() const;

  /// Called with every gradient when it arrives, before it is stored: to unscale, to look for what is not finite.
  std::function<void(size_t source, const torch::Tensor& gradient)> on_gradient;

 private:
  struct Place {
    int64_t offset = 0;
    int group = 0;
    bool filled = false;
  };
  struct Group {
    int64_t offset = 0;
    int64_t size = 0;
    int num_sources = 0;
    int missing = 0;
  };
  class Hook;

  void lay_out(const GradientStoreOptions& options);
  void take(size_t source, const torch::Tensor& leaf);
  void release_ready_groups();

  std::vector<GradientSource> sources_;
  std::vector<Place> places_;
  std::vector<Group> groups_;
  std::vector<torch::Tensor> slots_;
  int64_t size_ = 0;

  bool active_ = false;
  int slot_ = 0;
  bool add_ = false;
  int next_ready_ = 0;
  std::function<void(int)> ready_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace trireme
