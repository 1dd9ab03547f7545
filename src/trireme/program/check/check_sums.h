// Sums of gradients, represented as ranges of micro-batches: a range stands for the one sum that the tree defines for
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/program/instruction.h"

namespace trireme {

/// The sum of micro-batches first … last-1; first == last: no sum.
struct PartialSum {
  int first = 0;
  int last = 0;
  bool empty() const { return first == last; }
  bool operator==(const PartialSum&) const = default;
  std::string to_string() const;
};

/// The tree over the micro-batches of one update ([Note: Leaves]).
class SumTree {
 public:
  SumTree(int micro_batches_in_update, int num_leaves)
      : per_update_(micro_batches_in_update), leaf_size_(micro_batches_in_update / num_leaves) {}

  /// a + b; nullopt if the tree does not add these two.
  std::optional<PartialSum> add(PartialSum a, PartialSum b) const;
  /// The sum that an update must end with.
  PartialSum whole(int update) const { return {update * per_update_, (update + 1) * per_update_}; }
  /// The total of the replicas' sums, given replica by replica, slot by slot. Throws Error for a sum not in the tree.
  PartialSum across(const CrossRankSum& how, std::vector<PartialSum> sums) const;

 private:
  int per_update_, leaf_size_;
};

}  // namespace trireme
