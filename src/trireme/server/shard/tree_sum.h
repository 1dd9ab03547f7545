// Gradients of several workers on their way to one sum, in the order of the tree whoever comes first.
//
// [Note: Tree with holes]
// Branches of the tree of [Note: Reduction order] are summed as soon as both halves are there, which saves memory and
// changes no bit: every inner node is the sum of its two halves, whenever it is formed. A worker that is left out
// leaves a hole. At a node with one half empty the other half is the sum, so the result depends on who has contributed,
// and on nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trireme/program/reduction_tree.h"
#include "trireme/server/shard/block.h"

namespace trireme::server {

/// The sum over a branch. Whole, or of some rows: then `rows` are sorted, each once, and `values` has a row for each.
struct Partial {
  LeafRange leaves;
  Block values;
  std::vector<uint64_t> rows;
};

/// Whether the tree over `num_leaves` has a node over just these leaves.
bool is_branch(int num_leaves, LeafRange leaves);

/// Rows in any order, some perhaps twice, as Partial wants them; rows that are named twice are added in their order.
Partial sort_rows(LeafRange leaves, const std::vector<uint64_t>& rows, const float* values, size_t row_width);

/// As append_block_squares() of `count` elements, of which rows that are not in `sum` are zero.
void append_row_squares(const Partial& sum, size_t row_width, size_t count, std::vector<double>& out);

/// Owner: one thread. `row_width` 0: partial sums are whole.
class TreeSum {
 public:
  TreeSum(int num_leaves, size_t row_width) : num_leaves_(num_leaves), row_width_(row_width) {}

  bool overlaps(LeafRange leaves) const;
  /// A branch that overlaps nothing. Its memory is written to if nobody else has it.
  void add(Partial partial);
  /// The sum of what is there; it stays as the only partial sum.
  const Partial& finish();

  const std::map<int, Partial>& partials() const { return partials_; }

 private:
  Partial combine(Partial left, Partial right) const;
  bool sum_branch(LeafRange branch, Partial& out);

  int num_leaves_;
  size_t row_width_;
  std::map<int, Partial> partials_;  ///< by their first leaf
};

}  // namespace trireme::server
