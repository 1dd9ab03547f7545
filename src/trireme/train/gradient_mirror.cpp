#include "trireme/train/gradient_mirror.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr auto kCopyTimeout = std::chrono::minutes(10);

}  // namespace

GradientMirror::GradientMirror(const ModelPart& part, size_t num_slots) : part_(part) {
  for (const StageSet::Stage& stage : part.stages()) {
    std::vector<Copy>& groups = copies_.emplace_back();
    for (int group = 0; group < stage.gradients->num_groups(); ++group) {
      Copy& copy = groups.emplace_back();
      copy.arrived = std::make_unique<c10::Event>(stage.gradients->device().type());
      for (size_t slot = 0; slot < num_slots; ++slot) {
        const torch::Tensor from = stage.gradients->group(static_cast<int>(slot), group);
        copy.slots.push_back(torch::empty(from.sizes(), torch::TensorOptions().pinned_memory(true)));
      }
    }
  }
}

void GradientMirror::start(size_t stage, int group) {
  const torch::NoGradGuard no_grad;
  const GradientStore& store = *part_.stages()[stage].gradients;
  Copy& copy = copies_[stage][static_cast<size_t>(group)];
  for (size_t slot = 0; slot < copy.slots.size(); ++slot) {
    copy.slots[slot].copy_(store.group(static_cast<int>(slot), group), /*non_blocking=*/true);
  }
  copy.arrived->record(c10::impl::VirtualGuardImpl(store.device().type()).getStream(store.device()));
}

void GradientMirror::wait(size_t stage, int group) const {
  const Deadline deadline = Deadline::after(kCopyTimeout);
  while (!is_there(stage, group)) {
    if (deadline.expired()) {
      throw Error(fmt::format("gradients have not come from the GPU in {} minutes", kCopyTimeout.count()),
                  "a kernel hangs: nvidia-smi shows whether the GPU is busy; go on with --resume auto");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

torch::Tensor GradientMirror::gradient(size_t stage, size_t slot, size_t source) const {
  const GradientStore& store = *part_.stages()[stage].gradients;
  const FlatLayout::Place& place = store.layout().places()[source];
  const int64_t at = place.offset - store.layout().groups()[static_cast<size_t>(place.group)].offset;
  const torch::Tensor& part = local_part(store.sources()[source].leaf);
  return copies_[stage][static_cast<size_t>(place.group)].slots[slot].narrow(0, at, part.numel()).view(part.sizes());
}

}  // namespace trireme
