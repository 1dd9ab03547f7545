// A call of an operator for the proof of its rule, written in a line: "addmm x[3] x[5,7] x[7,3]".
//
// The operator's name without "aten::", then its arguments in order; what is left out has its default. Tensors:
// x[2,3] of normal numbers, p of positive ones, u of numbers between 0 and 1, b of booleans, i4 of integers below 4,
// k[5] a permutation of five numbers, n an undefined tensor; X and P are x and p that have no gradient. {…} is a list
// of tensors, [1,2] one of integers; _ is None, 'sum' a word. All numbers are drawn from the line itself. Before the
// name: "-" has no gradient to check, "?" has values that nobody knows (empty_like), "1" has a gradient of the first
// result only.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class ProofCall {
 public:
  /// Throws UsageError for a line that does not fit the operator's schema.
  explicit ProofCall(const std::string& line);

  const std::string& line() const { return line_; }
  uint64_t seed() const;                             ///< of everything that is drawn for this line
  const std::string& name() const { return name_; }  ///< with "aten::" and the overload
  bool checks_gradient() const { return checks_gradient_; }
  bool first_gradient_only() const { return first_gradient_only_; }
  bool checks_values() const { return checks_values_; }
  bool is_composite() const { return is_composite_; }
  /// In the order of the arguments, as drawn.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Which of them the operator changes, by its schema.
  const std::vector<bool>& written() const { return written_; }
  /// Which of them may have a gradient.
  const std::vector<bool>& differentiable() const { return differentiable_; }
  /// An operator like t_(), which changes the sizes of its tensor.
  bool turns() const {
    return name_.find("squeeze_") != std::string::npos || name_ == "aten::t_" || name_ == "aten::transpose_";
  }
  /// The tensor results (numbers as tensors) of the call on other tensors.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors) const;

 private:
  c10::IValue argument(std::string_view token, const c10::Argument& of);
  at::Tensor draw(std::string_view token);
  c10::IValue list(std::string_view inside, bool optional);

  std::string line_, name_;
  bool checks_gradient_ = true, checks_values_ = true, first_gradient_only_ = false, is_composite_ = false;
  std::vector<c10::IValue> arguments_;  ///< with the drawn tensors
  std::vector<at::Tensor> tensors_;
  std::vector<bool> written_, differentiable_;
  at::Generator generator_;
};

/// The calls that prove the rules, at least one a rule.
const std::vector<std::string>& proof_lines();

}  // namespace trireme
