#include "trireme/runtime/gradient_store.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finish_gradients.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {

namespace {

constexpr int64_t kFewestTurns = 2, kMostTurns = 4;  // one is being filled, others are in flight

/// The local part of a mesh tensor's gradient, in the layout of its leaf, with pending sums finished; other gradients
/// as they are.
torch::Tensor part_for(const torch::Tensor& leaf, const torch::Tensor& gradient) {
  const MeshSpec* home = mesh_spec(leaf);
  if (!home) return gradient;
  const MeshSpec* spec = mesh_spec(gradient);
  return redistribute_local(local_part(gradient), *home->mesh, spec ? *spec->layout : *home->mesh->replicated(),
                            *home->layout, leaf.sizes());
}

}  // namespace

class GradientStore::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  using Earlier = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;
  Hook(GradientStore& store, size_t source, Earlier earlier)
      : store_(&store), alive_(store.alive_), source_(source), earlier_(std::move(earlier)) {}
  void operator()(const at::Tensor& leaf) override {
    if (*alive_ && store_->active_) {
      store_->take(source_, leaf);
    } else if (earlier_) {
      (*earlier_)(leaf);
    }
  }

 private:
  GradientStore* store_;
  std::shared_ptr<bool> alive_;
  size_t source_;
  Earlier earlier_;  ///< hook of another store with the same leaf
};

FlatLayout layout_of(const std::vector<GradientSource>& sources, const GradientStoreOptions& options) {
  const auto element = static_cast<int64_t>(c10::elementSize(options.type));
  std::vector<FlatItem> items;
  for (const GradientSource& source : sources) {
    items.push_back({local_part(source.leaf).numel(), source.sharded, source.alone, source.unit});
  }
  return FlatLayout(std::move(items), {.bucket_elements = options.bucket_bytes / element,
                                       .first_bucket_elements = options.first_bucket_bytes / element,
                                       .by_unit = options.by_unit});
}

GradientStore::GradientStore(Communicator* comm, std::vector<GradientSource> sources,
                             const GradientStoreOptions& options)
    : sources_(std::move(sources)),
      layout_(layout_of(sources_, options)),
      keeps_whole_(options.keeps_whole),
      filled_(sources_.size()),
      missing_(layout_.groups().size()) {
  for (const GradientSource& source : sources_) {
    if (!source.leaf.is_leaf() || !source.leaf.requires_grad()) {
      throw UsageError(fmt::format("{} has no gradient of its own", source.name),
                       "give the parameters themselves, with requires_grad set");
    }
    if (!source.again && !finishes_gradient(source.leaf) &&
        torch::autograd::impl::post_acc_grad_hooks(source.leaf) != nullptr) {
      throw UsageError(fmt::format("the gradient of {} goes elsewhere already", source.name),
                       "give each parameter once, and end the earlier DataParallel or trainer first");
    }
  }
  if (!sources_.empty()) device_ = sources_[0].leaf.device();
  make_slots(comm, options);
  for (size_t i = 0; i < sources_.size(); ++i) {
    Hook::Earlier earlier = std::move(torch::autograd::impl::post_acc_grad_hooks(sources_[i].leaf));
    torch::autograd::impl::set_post_acc_grad_hooks(sources_[i].leaf,
                                                   std::make_unique<Hook>(*this, i, std::move(earlier)));
  }
}

void GradientStore::make_slots(Communicator* comm, const GradientStoreOptions& options) {
  const auto tensor_options = torch::TensorOptions().dtype(options.type).device(device_);
  const std::vector<FlatLayout::Group>& groups = layout_.groups();
  // Kept groups are contiguous, since the sharded ones come first.
  int64_t first_kept = 0, longest = 0;
  for (const FlatLayout::Group& group : groups) {
    if (keeps_whole_ || !group.sharded) continue;
    first_kept = group.offset + group.size;
    longest = std::max(longest, group.size);
  }
  for (int slot = 0; slot < options.num_slots; ++slot) {
    const torch::Tensor all = host_shared_zeros(slot < options.num_host_shared_slots ? comm : nullptr,
                                                layout_.size() - first_kept, tensor_options);
    slots_.emplace_back();
    for (const FlatLayout::Group& group : groups) {
      slots_.back().push_back(group.offset < first_kept ? torch::Tensor()
                                                        : all.narrow(0, group.offset - first_kept, group.size));
    }
  }
  // Several short groups may be in flight; long ones would take the memory that sharding is to save.
  const int64_t limit = options.bucket_bytes / static_cast<int64_t>(c10::elementSize(options.type));
  num_turns_ =
      static_cast<size_t>(std::clamp(kMostTurns * limit / std::max<int64_t>(longest, 1), kFewestTurns, kMostTurns));
  own_shard_ = static_cast<size_t>(options.own_shard);
  buffers_ =
      GroupBuffers([comm, tensor_options](int64_t count) { return host_shared_zeros(comm, count, tensor_options); });
  for (int group = 0; group < num_groups(); ++group) {
    if (!is_kept(group)) buffers_.expect(turn_of(group), groups[static_cast<size_t>(group)].size);
  }
  cuts_.resize(groups.size());
  shards_.resize(groups.size());
  for (size_t i = 0; i < groups.size() && groups[i].sharded; ++i) {
    cuts_[i] = layout_.cuts(static_cast<int>(i), options.num_shards);
    const int64_t begin = cuts_[i][static_cast<size_t>(options.own_shard)];
    const int64_t end = cuts_[i][static_cast<size_t>(options.own_shard) + 1];
    shards_[i] =
        keeps_whole_ ? slots_[0][i].narrow(0, begin, end - begin) : torch::zeros({end - begin}, tensor_options);
  }
}

GradientStore::~GradientStore() {
  *alive_ = false;
  for (const GradientSource& source : sources_) {
    torch::autograd::impl::set_post_acc_grad_hooks(source.leaf, nullptr);
  }
}

/// `alone` groups hold uses of tied weights, which are far apart in the model and so in time: one buffer does for all.
size_t GradientStore::turn_of(int group) const {
  const size_t first = layout_.groups()[static_cast<size_t>(group)].items[0];
  return layout_.items()[first].alone ? num_turns_ : static_cast<size_t>(group) % num_turns_;
}

/// Gets a buffer for a group that is not kept.
void GradientStore::acquire(int group) {
  torch::Tensor& whole = slots_[0][static_cast<size_t>(group)];
  if (whole.defined()) return;
  const size_t turn = turn_of(group);
  while (!buffers_.is_free(turn) && on_full && on_full()) {
  }
  whole = buffers_.take(turn, layout_.groups()[static_cast<size_t>(group)].size);
}

torch::Tensor GradientStore::take_out(int group) {
  torch::Tensor& whole = slots_[0][static_cast<size_t>(group)];
  return keeps_whole_ ? whole : std::exchange(whole, torch::Tensor());
}

void GradientStore::give_back(const torch::Tensor& whole) {
  if (!keeps_whole_) buffers_.give_back(whole);
}

std::vector<GroupLayout> GradientStore::group_layouts() const {
  std::vector<GroupLayout> layouts;
  const std::vector<FlatLayout::Group>& groups = layout_.groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    layouts.push_back({fmt::format("group {} of {}", i, sources_[0].name), static_cast<size_t>(groups[i].size), {}});
  }
  for (size_t i = sources_.size(); i-- > 0;) {  // in the order of the layout
    const torch::Tensor& part = local_part(sources_[i].leaf);
    const auto rows = static_cast<size_t>(part.dim() >= 2 ? part.size(0) : 1);
    const auto count = static_cast<size_t>(part.numel());
    if (count == 0) continue;
    const auto group = static_cast<size_t>(group_of(i));
    layouts[group].parts.push_back(
        {sources_[i].name, static_cast<size_t>(layout_.places()[i].offset - groups[group].offset), rows, count / rows});
  }
  return layouts;
}

void GradientStore::begin(int slot, bool add, std::function<void(int)> ready) {
  slot_ = slot;
  add_ = add;
  ready_ = std::move(ready);
  next_ready_ = 0;
  filled_.assign(sources_.size(), false);
  for (size_t i = 0; i < missing_.size(); ++i) missing_[i] = static_cast<int>(layout_.groups()[i].items.size());
  active_ = true;
}

void GradientStore::take(size_t source, const torch::Tensor& leaf) {
  const torch::Tensor gradient = part_for(leaf, std::exchange(leaf.mutable_grad(), torch::Tensor()));
  if (on_gradient) on_gradient(source, gradient);
  torch::NoGradGuard no_grad;
  acquire(group_of(source));
  const bool kept = is_kept(group_of(source));
  torch::Tensor target = this->gradient(kept ? slot_ : 0, source);
  if (gradient.data_ptr() == target.data_ptr()) {
    // This `.grad` is a view of the slot that was given out: autograd has added to it in place.
  } else if ((add_ && kept) || filled_[source]) {
    target.add_(gradient);
  } else {
    copy_into(target, gradient);
  }
  if (filled_[source]) return;
  filled_[source] = true;
  --missing_[static_cast<size_t>(group_of(source))];
  release_ready_groups();
}

void GradientStore::release_ready_groups() {
  while (next_ready_ < num_groups() && missing_[static_cast<size_t>(next_ready_)] == 0) {
    const int group = next_ready_++;
    if (ready_) ready_(group);
  }
}

void GradientStore::end() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (filled_[i]) continue;
    acquire(group_of(i));
    const bool kept = is_kept(group_of(i));
    if (!add_ || !kept) gradient(kept ? slot_ : 0, i).zero_();
    filled_[i] = true;
    --missing_[static_cast<size_t>(group_of(i))];
  }
  release_ready_groups();
  active_ = false;
  ready_ = {};
}

torch::Tensor GradientStore::group(int slot, int group) const {
  return slots_[static_cast<size_t>(slot)][static_cast<size_t>(group)];
}

void GradientStore::add_slot(int group, int slot, int from) {
  torch::NoGradGuard no_grad;
  this->group(slot, group).add_(this->group(from, group));
}

torch::Tensor GradientStore::gradient(int slot, size_t source) const {
  const torch::Tensor& part = local_part(sources_[source].leaf);
  const FlatLayout::Place& place = layout_.places()[source];
  const int64_t at = place.offset - layout_.groups()[static_cast<size_t>(place.group)].offset;
  return group(slot, place.group).narrow(0, at, part.numel()).view(part.sizes());
}

size_t GradientStore::num_bytes() const {
  size_t sum = 0;
  for (int group = 0; group < num_groups(); ++group) {
    const auto i = static_cast<size_t>(group);
    sum += is_kept(group) ? slots_[0][i].nbytes() : shards_[i].nbytes();
  }
  return sum;
}

size_t GradientStore::buffer_bytes() const {
  size_t sum = buffers_.num_bytes();
  for (size_t slot = 1; slot < slots_.size(); ++slot) {
    for (const torch::Tensor& group : slots_[slot]) sum += group.defined() ? group.nbytes() : 0;
  }
  return sum;
}

size_t GradientStore::bytes_of(size_t source) const {
  const int group = group_of(source);
  if (is_kept(group)) return gradient(0, source).nbytes();
  const std::vector<int64_t>& cuts = this->cuts(group);
  size_t sum = 0;
  for (const FlatLayout::Range& range : layout_.ranges(group, cuts[own_shard_], cuts[own_shard_ + 1])) {
    if (range.item == source) sum += static_cast<size_t>(range.count) * shard(group).element_size();
  }
  return sum;
}

}  // namespace trireme
