// Which tensors a model part has, and how much memory its gradients take.
#include <algorithm>

#include "trireme/train/model_part.h"

namespace trireme {

std::vector<WholeTensor> ModelPart::own_tensors() const {
  std::vector<WholeTensor> own;
  for (const Weight& weight : weights_) {
    const auto is_used = [&](const Tied& each) {
      return each.name == weight.name && each.use == groups_.pipeline_rank;
    };
    if (weight.entry >= 0 || std::any_of(tied_.begin(), tied_.end(), is_used)) {
      own.push_back({weight.name, weight.sizes});
    }
  }
  return own;
}

size_t ModelPart::second_use_bytes() const {
  size_t sum = 0;
  for (const Tied& tied : tied_) {
    if (tied.use == groups_.pipeline_rank) sum += stages_[tied.of_use.stage].gradients->bytes_of(tied.of_use.number);
  }
  return sum;
}

size_t ModelPart::gradient_bytes() const {
  size_t sum = 0;
  for (const StagePart& stage : stages_) sum += stage.gradients->num_bytes();
  return sum - second_use_bytes();
}

size_t ModelPart::gradient_buffer_bytes() const {
  size_t sum = second_use_bytes();
  for (const StagePart& stage : stages_) sum += stage.gradients->buffer_bytes();
  return sum;
}

}  // namespace trireme
