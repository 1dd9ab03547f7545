// A named tensor as bytes: what checkpoints hold, without libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/types.h"

namespace trireme {

struct TensorInfo {
  std::string name;
  DataType type = DataType::kFloat;
  std::vector<int64_t> shape;

  size_t count() const {
    size_t n = 1;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    return n;
  }
  size_t num_bytes() const { return count() * size_of(type); }
  bool operator==(const TensorInfo&) const = default;
};

/// Contiguous, row-major, little-endian; the bytes belong to somebody else.
struct TensorView {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

/// The same with bytes of its own.
struct OwnedTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;

  /// Valid as long as this tensor is neither changed nor moved.
  TensorView view() const { return {info, bytes}; }
};

}  // namespace trireme
