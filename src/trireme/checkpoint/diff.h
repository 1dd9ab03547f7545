// Compares two checkpoints tensor by tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/reader.h"

namespace trireme {

struct TensorDifference {
  TensorInfo a, b;
  uint64_t num_different = 0;     ///< elements whose bits differ, where type and shape agree
  double largest = 0;             ///< absolute difference, among numbers that are finite in both
  uint64_t largest_ulp = 0;       ///< representable numbers between the two, for floating types; not for NaN
  uint64_t num_one_nan = 0;       ///< elements that are NaN in one only
  uint64_t num_one_infinite = 0;  ///< elements that are infinite in one, and a number in the other

  bool comparable() const { return a.type == b.type && a.shape == b.shape; }
};

struct CheckpointDifference {
  std::vector<std::string> only_a, only_b;  ///< sorted
  std::vector<TensorDifference> different;  ///< other type, other shape or other bits; sorted by name
  uint64_t num_equal = 0;                   ///< tensors that agree in every bit

  bool equal() const { return only_a.empty() && only_b.empty() && different.empty(); }
};

/// Takes memory for one tensor of each. Throws what reading throws.
CheckpointDifference diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b);

/// The same for bytes of two tensors of one type and size.
TensorDifference diff_tensors(const TensorView& a, const TensorView& b);

}  // namespace trireme
