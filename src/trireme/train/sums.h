// Asks a model that was trained on generated text for sums that it has never seen.
#pragma once

#include <torch/types.h>

#include <functional>

#include "trireme/data/text/generated_text.h"

namespace trireme {

struct SumsScore {
  int64_t asked = 0;
  int64_t right = 0;
};
/// `predict` gives the logits of a text. The most likely next byte is taken, again and again.
SumsScore ask_sums(const std::function<torch::Tensor(const torch::Tensor&)>& predict,
                   const GeneratedTextOptions& options, int64_t most);

}  // namespace trireme
