// The tree along which gradients are summed, and what a rank with some consecutive leaves of it can sum alone.
//
// [Note: Leaves]
// A step's micro-batches form `num_leaves` leaves, equal blocks of consecutive micro-batches. The sum of a leaf runs
// through its micro-batches one after another; leaves are summed along the tree of [Note: Reduction order], which
// splits n leaves at the largest power of two below n. A rank owns consecutive leaves. They need not be a whole branch:
// of 24 leaves on 2 ranks, the first holds 0..11, which are the branches 0..7 and 8..11. So a rank ends with one
// partial sum for each maximal branch in its range, and the ranks together finish the tree:
//
//   24 ─┬─ 0..15 ─┬─ 0..7                 rank 0
//       │         └─ 8..15 ─┬─ 8..11      rank 0
//       │                   └─ 12..15     rank 1
//       └─ 16..23                         rank 1
//
// Where leaves a rank are a power of two, each rank has one partial sum, and an ordered all-reduce is the rest.
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

/// Sums branch `from` into branch `into`: numbers of slots, or of partial sums.
struct Addition {
  int into = 0;
  int from = 0;
  bool operator==(const Addition&) const = default;
};

/// What a rank does after each of its leaves: the leaf's sum lies in `slot`; then the additions, in order.
struct LeafStep {
  int leaf = 0;
  int slot = 0;
  std::vector<Addition> additions;
};

/// A rank's part of the tree. At the end the partial sums lie in slots 0, 1, … in the order of `partials`.
struct LeafSchedule {
  std::vector<LeafStep> steps;
  std::vector<LeafRange> partials;
  int num_slots = 0;  ///< needed at most at once
};
/// Of the leaves one after another; or in `lanes` equal parts of them, which are worked through side by side: the first
/// leaf of each, the second of each, and so on ([Note: Lanes]).
LeafSchedule schedule_leaves(int num_leaves, LeafRange own, int lanes = 1);

inline constexpr int64_t kMostDerivedLeaves = 8;
/// The leaves of a step where nothing is said: the largest divisor of the number of micro-batches that is at most 8. Of
/// the ranks it knows nothing, so that another number of them gives the same bits.
int64_t derived_leaves(int64_t num_micro_batches);

/// Two neighbours are the two halves of one branch: their sum is in the tree.
bool are_siblings(int num_leaves, LeafRange left, LeafRange right);

/// The additions that finish the tree from partial sums which cover all leaves in order. The sum ends in number 0.
std::vector<Addition> finish_tree(int num_leaves, const std::vector<LeafRange>& partials);

/// All ranks have one partial sum, and an ordered all-reduce over the ranks adds them along the same tree.
bool ranks_are_branches(int num_leaves, int num_ranks);

}  // namespace trireme
