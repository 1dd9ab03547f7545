#include "trireme/train/sums.h"

#include <torch/torch.h>

namespace trireme {

SumsScore ask_sums(const std::function<torch::Tensor(const torch::Tensor&)>& predict,
                   const GeneratedTextOptions& options, int64_t most) {
  const std::vector<SumQuestion> questions = held_out_sums(options, most);
  if (questions.empty()) return {};
  // All prompts have the same length. Each starts with the newline of the line before, since lines in training follow
  // one.
  const auto count = static_cast<int64_t>(questions.size());
  const auto length = static_cast<int64_t>(questions[0].prompt.size()) + 1;
  torch::Tensor text = torch::empty({count, length}, torch::kInt64);
  for (int64_t i = 0; i < count; ++i) {
    const std::string line = "\n" + questions[static_cast<size_t>(i)].prompt;
    for (int64_t at = 0; at < length; ++at) text[i][at] = static_cast<uint8_t>(line[static_cast<size_t>(at)]);
  }
  const auto answer_length = static_cast<int64_t>(questions[0].answer.size());
  for (int64_t i = 0; i < answer_length; ++i) {
    const torch::Tensor next = predict(text).select(1, -1).argmax(-1, true);
    text = torch::cat({text, next}, 1);
  }
  SumsScore score{count, 0};
  for (int64_t i = 0; i < count; ++i) {
    std::string answer;
    for (int64_t at = length; at < length + answer_length; ++at) {
      answer += static_cast<char>(text[i][at].item<int64_t>());
    }
    score.right += answer == questions[static_cast<size_t>(i)].answer;
  }
  return score;
}

}  // namespace trireme
