// The tree along which gradients are summed, and the partial sums that a rank with consecutive leaves can compute
// alone.
//
// [Note: Leaves]
// A step's micro-batches form `num_leaves` leaves, blocks of equally many consecutive micro-batches. Within a leaf,
// micro-batches are added one after another; leaves are added along the tree of [Note: Reduction order], which splits n
// leaves at the largest power of two below n. A rank owns consecutive leaves, which need not form a whole branch: of 24
// leaves on 2 ranks, the first rank owns 0..11, that is, branches 0..7 and 8..11. So each rank ends with one partial
// sum per maximal branch in its range, and the ranks finish the tree together:
//
//   24 ─┬─ 0..15 ─┬─ 0..7                 rank 0
//       │         └─ 8..15 ─┬─ 8..11      rank 0
//       │                   └─ 12..15     rank 1
//       └─ 16..23                         rank 1
//
// If the number of leaves per rank is a power of two, each rank has one partial sum, and an ordered all-reduce does the
// rest.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

/// Leaves first … last-1.
struct LeafRange {
  int first = 0;
  int last = 0;
  bool operator==(const LeafRange&) const = default;
};

/// Adds branch `from` to branch `into`: indices of slots, or of partial sums.
struct Addition {
  int into = 0;
  int from = 0;
  bool operator==(const Addition&) const = default;
};

/// One leaf of a rank: its sum is in `slot`; then the additions follow, in order.
struct LeafStep {
  int leaf = 0;
  int slot = 0;
  std::vector<Addition> additions;
};

/// A rank's part of the tree. At the end the partial sums are in slots 0, 1, … in the order of `partials`.
struct LeafSchedule {
  std::vector<LeafStep> steps;
  std::vector<LeafRange> partials;
  int num_slots = 0;  ///< most slots in use at once
};
/// The schedule for the leaves in order; or for `lanes` equal parts of them, interleaved: the first leaf of each part,
/// the second of each, and so on ([Note: Lanes]).
LeafSchedule schedule_leaves(int num_leaves, LeafRange own, int lanes = 1);

inline constexpr int64_t kMostDerivedLeaves = 8;
/// The default number of leaves of a step: the largest divisor of the number of micro-batches that is at most 8. It
/// does not depend on the number of ranks, so any number of ranks gives the same bits.
int64_t derived_leaves(int64_t num_micro_batches);

/// Whether two neighbouring ranges are the two halves of one branch, so that their sum is in the tree.
bool are_siblings(int num_leaves, LeafRange left, LeafRange right);

/// The additions that finish the tree, given partial sums that cover all leaves in order. The total ends up in number
/// 0.
std::vector<Addition> finish_tree(int num_leaves, const std::vector<LeafRange>& partials);

/// Whether each rank has one partial sum, so that an ordered all-reduce adds them along the same tree.
bool ranks_are_branches(int num_leaves, int num_ranks);

}  // namespace trireme
