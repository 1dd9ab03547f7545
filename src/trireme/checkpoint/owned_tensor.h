// A named tensor with its bytes: what a snapshot holds while it is written, and what is made on the way out.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

/// Contiguous, row-major, little-endian.
struct OwnedTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;

  /// Valid as long as this tensor is neither changed nor moved.
  TensorView view() const { return {info, bytes}; }
};

}  // namespace trireme
