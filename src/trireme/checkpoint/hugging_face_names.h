// Which of our tensors is which of Hugging Face's: the table behind checkpoint/hugging_face.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/model_config.h"

namespace trireme {

/// One tensor of ours is one of theirs, or theirs one after another along dim 0.
struct NameRule {
  struct Part {
    std::string name;
    int64_t rows;  ///< of ours that it takes: its size in our dim 0
  };
  std::string ours;
  std::vector<int64_t> shape;  ///< of ours
  std::vector<Part> theirs;
  bool transposed = false;  ///< theirs is [in, out] (GPT-2's Conv1D), ours [out, in]; only where it is one part

  std::vector<int64_t> their_shape(const Part& part) const;
};

/// In the order of our model. Throws UsageError for a kind of model that Hugging Face's names do not cover here.
std::vector<NameRule> hugging_face_rules(const ModelConfig& config);

}  // namespace trireme
