// How a tensor is distributed along one axis of a mesh: replicated, sharded along a dimension, or as partial values.
//
// [Note: Pieces]
// The simplest sharding of a dimension gives rank c the c-th of k blocks. Two numbers make every view of a sharded
// tensor a sharding, too, without communication: `stretches` (the dimension consists of that many stretches, each
// sharded separately) and `unit` (that many neighbours stay together).
//
//   [batch 2, seq 4] sharded along seq, as [8]:  0 0 1 1 0 0 1 1    shard(0, stretches 2)
//   [heads 3, 2] sharded along heads,  as [6]:   0 0 0 0 1 1        shard(0, unit 2), heads 2 and 1
//
// `ratio` describes repeated stretches of unequal lengths: {2, 1, 1} means twice as many queries as keys, then values.
// Blocks differ by at most one unit; the first ranks have the longer ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class PartialOp : uint8_t { kSum, kAverage, kMax, kMin };

struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  using Ratio = std::array<int16_t, 3>;

  Kind kind = Kind::kReplicate;
  PartialOp op = PartialOp::kSum;  ///< only used if partial
  int dim = 0;                     ///< only used if sharded, as are the rest
  int64_t stretches = 1;
  int64_t unit = 1;
  Ratio ratio = {1, 0, 0};

  static Placement replicate() { return {}; }
  static Placement shard(int dim, int64_t stretches = 1, int64_t unit = 1) {
    return {Kind::kShard, PartialOp::kSum, dim, stretches, unit, {1, 0, 0}};
  }
  static Placement partial(PartialOp op = PartialOp::kSum) { return {Kind::kPartial, op, 0, 1, 1, {1, 0, 0}}; }

  bool is_replicate() const { return kind == Kind::kReplicate; }
  bool is_shard() const { return kind == Kind::kShard; }
  bool is_shard(int of_dim) const { return kind == Kind::kShard && dim == of_dim; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool is_sum() const { return kind == Kind::kPartial && op == PartialOp::kSum; }
  /// The same sharding of another dimension.
  Placement with_dim(int new_dim) const;

  bool operator==(const Placement&) const = default;
  /// "replicate", "shard(0)", "shard(0, stretches 2, unit 3)", "partial(sum)".
  std::string to_string() const;
  /// Parses that, or a short form: "R", "S(0)", "S0", "P". Throws UsageError.
  static Placement parse(std::string_view text);
};

/// Elements first … first + length - 1 of a dimension.
struct Piece {
  int64_t first = 0;
  int64_t length = 0;
  bool operator==(const Piece&) const = default;
};

/// Pieces of a dimension of `extent` elements that rank `coordinate` of `axis_size` holds, in the order in which the
/// rank stores them. `shard` must fit the extent.
std::vector<Piece> pieces(const Placement& shard, int64_t extent, int axis_size, int coordinate);
/// Total length of those pieces.
int64_t local_extent(const Placement& shard, int64_t extent, int axis_size, int coordinate);
/// Whether stretches, unit and ratio divide the extent.
bool fits(const Placement& shard, int64_t extent);
/// Whether every rank holds equally many elements.
bool is_even(const Placement& shard, int64_t extent, int axis_size);
/// A canonical form: unit 1 if blocks are equal, replicate on an axis of one rank.
Placement canonical(Placement placement, int64_t extent, int axis_size);

}  // namespace trireme
