// Combines gradients over replicas with Adasum, on the device that holds them.
#include "trireme/compress/adasum.h"

#include <algorithm>
#include <optional>

#include "trireme/tensor/device.h"
#include "trireme/train/updates/host_update.h"
#include "trireme/train/updates/policies.h"

namespace trireme {
namespace {

class AdasumUpdate : public HostUpdate {
 public:
  AdasumUpdate(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights)
      : HostUpdate(context, std::move(weights)),
        store_(*part_.stages()[0].gradients),
        own_processor_(make_processor(store_.device())),
        processor_(own_processor_ ? *own_processor_ : host_processor()),
        layouts_(store_.group_layouts()) {
    average_ = 1.0 / static_cast<double>(context.own_micro_batches);
    size_t longest = 0;
    for (const GroupLayout& layout : layouts_) longest = std::max(longest, layout.count);
    scratch_.emplace(processor_, longest);
  }

  uint64_t bytes_sent() const override { return bytes_sent_; }

  void combine() override {
    const std::function<void()> wait = processor_.after(current_stream(store_.device()));
    if (wait) wait();
    for (size_t i = 0; i < layouts_.size(); ++i) {
      const torch::Tensor values = store_.group(0, static_cast<int>(i));
      const std::span<float> own{values.data_ptr<float>(), static_cast<size_t>(values.numel())};
      bytes_sent_ += adasum(*groups_.replicas(), layouts_[i], own, scratch_->span(), processor_);
    }
  }

 private:
  const GradientStore& store_;
  std::unique_ptr<Processor> own_processor_;  ///< null: the host's
  Processor& processor_;
  const std::vector<GroupLayout> layouts_;
  std::optional<Array<float>> scratch_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<UpdatePolicy> make_adasum(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights) {
  return std::make_unique<AdasumUpdate>(context, std::move(weights));
}

}  // namespace trireme
