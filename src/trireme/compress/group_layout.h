// Which tensors lie in a group of gradients that is summed at once, and where.
#pragma once

#include <string>
#include <vector>

namespace trireme {

/// A tensor's place in a flat group. As a matrix it has rows × columns elements; a vector has one row.
struct TensorPart {
  std::string name;
  size_t offset = 0;
  size_t rows = 1, columns = 0;
  size_t count() const { return rows * columns; }
};

/// The names are the same on all ranks, and those of tensors in all groupings, for what is saved under them.
struct GroupLayout {
  std::string name;
  size_t count = 0;
  std::vector<TensorPart> parts;  ///< ascending, without overlap; none: one vector with the name of the group
  /// Elements of each rank's shard, one after another, where a rank needs no more of the sum; none: all need all.
  std::vector<size_t> shards = {};
};

/// The layout with parts that cover it all: what no tensor covers (padding) becomes vectors with names of their own.
/// Throws UsageError where tensors do not fit.
GroupLayout checked(GroupLayout layout);

}  // namespace trireme
