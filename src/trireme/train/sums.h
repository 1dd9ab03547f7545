// Asks a model that was trained on generated text for sums that it has not seen in training.
#pragma once

#include <torch/types.h>

#include <functional>

#include "trireme/data/text/generated_text.h"

namespace trireme {

struct SumsScore {
  int64_t asked = 0;
  int64_t right = 0;
};
/// `predict` returns the logits of a text. Answers are decoded greedily, byte by byte. `most`: largest number of
/// questions.
SumsScore ask_sums(const std::function<torch::Tensor(const torch::Tensor&)>& predict,
                   const GeneratedTextOptions& options, int64_t most);

}  // namespace trireme
