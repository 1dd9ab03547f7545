// Copies a GPU's gradients to pinned host memory, bucket by bucket, while its backward pass continues.
//
// Owner: the sender of the gradients. Threads: one. Blocking: only wait(), which throws Error after ten minutes.
#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trireme/train/model_part.h"

namespace trireme {

class GradientMirror {
 public:
  /// For the first `num_slots` slots of all stages of `part`, which must outlive it.
  GradientMirror(const ModelPart& part, size_t num_slots);

  /// Enqueues the copy of a stage's bucket on the current stream.
  void start(size_t stage, int group);
  /// Whether the last copy started for this bucket has arrived.
  bool is_there(size_t stage, int group) const { return copies_[stage][static_cast<size_t>(group)].arrived->query(); }
  void wait(size_t stage, int group) const;
  /// Like GradientStore::gradient(), but from the host copy.
  torch::Tensor gradient(size_t stage, size_t slot, size_t source) const;

 private:
  struct Copy {
    std::vector<torch::Tensor> slots;
    std::unique_ptr<c10::Event> arrived;
  };
  const ModelPart& part_;
  std::vector<std::vector<Copy>> copies_;  ///< indexed by stage and bucket
};

}  // namespace trireme
