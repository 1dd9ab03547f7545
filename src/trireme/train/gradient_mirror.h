// Gradients that leave a GPU while its backward pass goes on: copies of their groups in pinned memory of the host.
//
// Owner: who sends them. Threads: one. Blocking: wait() alone; it throws Error after ten minutes.
#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trireme/train/model_part.h"

namespace trireme {

class GradientMirror {
 public:
  /// Of the first `num_slots` slots of all stages of `part`, which must outlive it.
  GradientMirror(const ModelPart& part, size_t num_slots);

  /// The GPU copies a group of a stage in its turn, after what was started so far.
  void start(size_t stage, int group);
  /// Whether the copy that was started last is there.
  bool is_there(size_t stage, int group) const { return copies_[stage][static_cast<size_t>(group)].arrived->query(); }
  void wait(size_t stage, int group) const;
  /// As GradientStore::gradient(), of the copy.
  torch::Tensor gradient(size_t stage, size_t slot, size_t source) const;

 private:
  struct Copy {
    std::vector<torch::Tensor> slots;
    std::unique_ptr<c10::Event> arrived;
  };
  const ModelPart& part_;
  std::vector<std::vector<Copy>> copies_;  ///< by stage and group
};

}  // namespace trireme
