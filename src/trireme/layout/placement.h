// How a tensor lies along one axis of a mesh: whole on every rank, cut along a dimension, or as parts of a sum.
//
// [Note: Pieces]
// The simplest cut of a dimension gives rank c the c-th of k blocks. Two numbers make every view of a cut tensor a cut
// again, so that nothing moves: `stretches` (the dimension is so many stretches, each cut by itself) and `unit`
// (so many neighbours stay together).
//
//   [batch 2, seq 4] cut along seq, as [8]:  0 0 1 1 0 0 1 1    shard(0, stretches 2)
//   [heads 3, 2] cut along heads,  as [6]:   0 0 0 0 1 1        shard(0, unit 2), heads 2 and 1
//
// `ratio` is for stretches of unequal lengths that are repeated: {2, 1, 1} is twice as many queries as keys, then
// values. Blocks differ by one unit at most, the first ranks have the longer ones.
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
  PartialOp op = PartialOp::kSum;  ///< of a partial
  int dim = 0;                     ///< of a shard, like the rest
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
  /// The same cut of another dimension.
  Placement with_dim(int new_dim) const;

  bool operator==(const Placement&) const = default;
  /// "replicate", "shard(0)", "shard(0, stretches 2, unit 3)", "partial(sum)".
  std::string to_string() const;
  /// That, or short: "R", "S(0)", "S0", "P". Throws UsageError.
  static Placement parse(std::string_view text);
};

/// Elements first … first + length - 1 of a dimension.
struct Piece {
  int64_t first = 0;
  int64_t length = 0;
  bool operator==(const Piece&) const = default;
};

/// What rank `coordinate` of `axis_size` holds of a dimension of `extent` elements, in the order in which it lies
/// there. `shard` fits the extent.
std::vector<Piece> pieces(const Placement& shard, int64_t extent, int axis_size, int coordinate);
/// The sum of their lengths.
int64_t local_extent(const Placement& shard, int64_t extent, int axis_size, int coordinate);
/// stretches, unit and ratio divide the extent.
bool fits(const Placement& shard, int64_t extent);
/// Every rank holds as much.
bool is_even(const Placement& shard, int64_t extent, int axis_size);
/// The one way to write a cut: unit 1 where blocks are equal, replicate on an axis of one rank.
Placement canonical(Placement placement, int64_t extent, int axis_size);

}  // namespace trireme
