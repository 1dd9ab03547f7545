// The comparison and the judgement of `trireme verify`: equal, float noise, grown beyond noise, or a bug.
//
// Differences are measured by the largest element of their tensor. Units in the last place of the element itself say
// nothing here: between -1e-9 and 1e-9 there are 1.7 billion of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/safetensors.h"

namespace trireme::measure {

/// One tensor of one step that differs between the two trainings.
struct Difference {
  std::string tensor;  ///< "loss", "gradient.NAME", "weight.NAME"
  int64_t step = 0;
  uint64_t num_elements = 0;   ///< that differ
  double relative = 0;         ///< the largest difference, by the largest element of the tensor in either training
  bool finite_in_one = false;  ///< an element is NaN or infinite in one training only
  std::optional<double> ratio = {};  ///< b is this many times a, everywhere
};

enum class Judgement {
  kEqual,
  kNoise,  ///< begins as rounding errors do, and stays small
  kGrown,  ///< begins as rounding errors do, but becomes too large to tell from a bug
  kBug,    ///< is there from one step to the next, from equal weights
};

struct Verdict {
  Judgement judgement = Judgement::kEqual;
  std::optional<Difference> first;    ///< what decides: where it begins or, of a bug, where it is
  std::optional<Difference> largest;  ///< of all steps
};

/// Two recorded trainings.
struct Comparison {
  std::vector<Difference> differences;  ///< in the order in which training computes
  int64_t steps = 0, tensors = 0;       ///< that were compared
};
/// Compares the folders that `trireme-tensor train --record` has written. Throws Error or SystemError for files that
/// cannot be read or do not hold the same tensors.
Comparison compare_recorded(const std::filesystem::path& a, const std::filesystem::path& b, int64_t steps);

/// The factor r with b = r · a for every element, as a missing or repeated reduction gives; nothing where there is
/// none, or it is 1.
std::optional<double> common_ratio(const TensorView& a, const TensorView& b);

/// `differences` in the order in which training computes: step by step the loss, gradients, then weights.
Verdict judge(const std::vector<Difference>& differences);

/// "equal", "noise", "grown", "bug".
std::string name_of(Judgement judgement);

/// Says for people what differs, where and by how much. `steps` and `tensors`: how many were compared.
std::string words_of(const Verdict& verdict, int64_t steps, int64_t tensors);

}  // namespace trireme::measure
