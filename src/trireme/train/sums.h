// Asks a model that was trained on generated text for sums that it has never seen.
#pragma once

#include "trireme/data/generated_text.h"
#include "trireme/models/model.h"

namespace trireme {

struct SumsScore {
  int64_t asked = 0;
  int64_t right = 0;
};
/// The most likely next byte, again and again. Leaves the model in evaluation mode.
SumsScore ask_sums(Model& model, const GeneratedTextOptions& options, int64_t most);

}  // namespace trireme
