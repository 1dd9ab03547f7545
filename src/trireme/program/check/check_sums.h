// Sums of gradients as ranges of micro-batches: a range stands for one sum, the one that the tree prescribes for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/program/instruction.h"

namespace trireme {

/// The sum of micro-batches first … last-1; none: nothing to read.
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

  /// a + b; none where the tree does not add these two.
  std::optional<PartialSum> add(PartialSum a, PartialSum b) const;
  /// What an update must end with.
  PartialSum whole(int update) const { return {update * per_update_, (update + 1) * per_update_}; }
  /// What the replicas' sums (slot by slot, replica by replica) come to. Throws Error where they leave the tree.
  PartialSum across(const CrossRankSum& how, std::vector<PartialSum> sums) const;

 private:
  int per_update_, leaf_size_;
};

}  // namespace trireme
