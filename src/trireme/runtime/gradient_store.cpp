#include "trireme/runtime/gradient_store.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/redistribute.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {

namespace {

/// A gradient of a mesh tensor in the layout of its leaf, sums finished; others as they are.
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
  Hook(GradientStore& store, size_t source) : store_(&store), alive_(store.alive_), source_(source) {}
  void operator()(const at::Tensor& leaf) override {
    if (*alive_ && store_->active_) store_->take(source_, leaf);
  }

 private:
  GradientStore* store_;
  std::shared_ptr<bool> alive_;
  size_t source_;
};

GradientStore::GradientStore(Communicator* comm, std::vector<GradientSource> sources,
                             const GradientStoreOptions& options)
    : sources_(std::move(sources)), places_(sources_.size()) {
  for (const GradientSource& source : sources_) {
    if (!source.leaf.is_leaf() || !source.leaf.requires_grad()) {
      throw UsageError(fmt::format("{} has no gradient of its own", source.name),
                       "give the parameters themselves, with requires_grad set");
    }
    if (torch::autograd::impl::post_acc_grad_hooks(source.leaf) != nullptr) {
      throw UsageError(fmt::format("the gradient of {} goes elsewhere already", source.name),
                       "give each parameter once, and end the earlier DataParallel or trainer first");
    }
  }
  lay_out(options);
  const auto device = sources_.empty() ? torch::Device(torch::kCPU) : sources_[0].leaf.device();
  const auto tensor_options = torch::TensorOptions().dtype(options.type).device(device);
  for (int slot = 0; slot < options.num_slots; ++slot) {
    slots_.push_back(shared_zeros(slot < options.num_shared_slots ? comm : nullptr, size_, tensor_options));
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(sources_[i].leaf, std::make_unique<Hook>(*this, i));
  }
}

GradientStore::~GradientStore() {
  *alive_ = false;
  for (const GradientSource& source : sources_) {
    torch::autograd::impl::set_post_acc_grad_hooks(source.leaf, nullptr);
  }
}

void GradientStore::lay_out(const GradientStoreOptions& options) {
  const auto element = static_cast<int64_t>(c10::elementSize(options.type));
  const int64_t alignment = 64 / element;
  for (size_t i = sources_.size(); i-- > 0;) {
    const int64_t limit = (groups_.size() <= 1 ? options.first_group_bytes : options.group_bytes) / element;
    if (groups_.empty() || groups_.back().size >= limit) groups_.push_back({size_, 0, 0, 0});
    Group& group = groups_.back();
    const int64_t room = (local_part(sources_[i].leaf).numel() + alignment - 1) / alignment * alignment;
    places_[i] = {size_, static_cast<int>(groups_.size()) - 1, false};
    ++group.num_sources;
    group.size += room;
    size_ += room;
  }
}

std::vector<GroupLayout> GradientStore::group_layouts() const {
  std::vector<GroupLayout> layouts;
  for (size_t i = 0; i < groups_.size(); ++i) {
    layouts.push_back({fmt::format("group {} of {}", i, sources_[0].name), static_cast<size_t>(groups_[i].size), {}});
  }
  for (size_t i = sources_.size(); i-- > 0;) {  // as they are laid out
    const torch::Tensor& part = local_part(sources_[i].leaf);
    const auto rows = static_cast<size_t>(part.dim() >= 2 ? part.size(0) : 1);
    const auto count = static_cast<size_t>(part.numel());
    if (count == 0) continue;
    const auto group = static_cast<size_t>(places_[i].group);
    layouts[group].parts.push_back(
        {sources_[i].name, static_cast<size_t>(places_[i].offset - groups_[group].offset), rows, count / rows});
  }
  return layouts;
}

void GradientStore::begin(int slot, bool add, std::function<void(int)> ready) {
  slot_ = slot;
  add_ = add;
  ready_ = std::move(ready);
  next_ready_ = 0;
  for (Place& place : places_) place.filled = false;
  for (Group& group : groups_) group.missing = group.num_sources;
  active_ = true;
}

void GradientStore::take(size_t source, const torch::Tensor& leaf) {
  const torch::Tensor gradient = part_for(leaf, std::exchange(leaf.mutable_grad(), torch::Tensor()));
  if (on_gradient) on_gradient(source, gradient);
  Place& place = places_[source];
  torch::NoGradGuard no_grad;
  torch::Tensor target = this->gradient(slot_, source);
  if (gradient.data_ptr() == target.data_ptr()) {
    // A `.grad` that was given out as a view of this slot: autograd has added to it where it lies.
  } else if (add_ || place.filled) {
    target.add_(gradient);
  } else {
    copy_into(target, gradient);
  }
  if (place.filled) return;
  place.filled = true;
  --groups_[static_cast<size_t>(place.group)].missing;
  release_ready_groups();
}

void GradientStore::release_ready_groups() {
  while (next_ready_ < num_groups() && groups_[static_cast<size_t>(next_ready_)].missing == 0) {
    const int group = next_ready_++;
    if (ready_) ready_(group);
  }
}

void GradientStore::end() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (places_[i].filled) continue;
    if (!add_) gradient(slot_, i).zero_();
    places_[i].filled = true;
    --groups_[static_cast<size_t>(places_[i].group)].missing;
  }
  release_ready_groups();
  active_ = false;
  ready_ = {};
}

torch::Tensor GradientStore::group(int slot, int group) const {
  const Group& range = groups_[static_cast<size_t>(group)];
  return slots_[static_cast<size_t>(slot)].narrow(0, range.offset, range.size);
}

void GradientStore::add_slot(int group, int slot, int from) {
  torch::NoGradGuard no_grad;
  this->group(slot, group).add_(this->group(from, group));
}

torch::Tensor GradientStore::gradient(int slot, size_t source) const {
  const torch::Tensor& part = local_part(sources_[source].leaf);
  return slots_[static_cast<size_t>(slot)].narrow(0, places_[source].offset, part.numel()).view(part.sizes());
}

size_t GradientStore::num_bytes() const {
  size_t sum = 0;
  for (const torch::Tensor& slot : slots_) sum += slot.nbytes();
  return sum;
}

}  // namespace trireme
