#include "trireme/program/reduction_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace trireme {
namespace {

int split_of(LeafRange branch) {
  return branch.first + static_cast<int>(std::bit_floor(static_cast<unsigned>(branch.last - branch.first - 1)));
}

}  // namespace

int64_t derived_leaves(int64_t num_micro_batches) {
  int64_t leaves = std::min(num_micro_batches, kMostDerivedLeaves);
  while (num_micro_batches % leaves != 0) --leaves;
  return leaves;
}

bool are_siblings(int num_leaves, LeafRange left, LeafRange right) {
  LeafRange branch{0, num_leaves};
  while (branch.last - branch.first > 1) {
    const int split = split_of(branch);
    if (branch.first == left.first && split == left.last && branch.last == right.last) return true;
    if (left.first < split && right.last > split) return false;  // not one of its halves, but across its split
    (right.last <= split ? branch.last : branch.first) = split;
  }
  return false;
}

LeafSchedule schedule_leaves(int num_leaves, LeafRange own) {
  assert(0 <= own.first && own.first < own.last && own.last <= num_leaves);
  LeafSchedule schedule;
  std::vector<LeafRange>& stack = schedule.partials;
  for (int leaf = own.first; leaf < own.last; ++leaf) {
    LeafStep step{leaf, static_cast<int>(stack.size()), {}};
    stack.push_back({leaf, leaf + 1});
    schedule.num_slots = std::max(schedule.num_slots, static_cast<int>(stack.size()));
    while (stack.size() > 1 && are_siblings(num_leaves, stack[stack.size() - 2], stack.back())) {
      const int from = static_cast<int>(stack.size()) - 1;
      step.additions.push_back({from - 1, from});
      stack[stack.size() - 2].last = stack.back().last;
      stack.pop_back();
    }
    schedule.steps.push_back(std::move(step));
  }
  return schedule;
}

std::vector<Addition> finish_tree(int num_leaves, const std::vector<LeafRange>& partials) {
  struct Entry {
    LeafRange range;
    int number;
  };
  std::vector<Entry> stack;
  std::vector<Addition> additions;
  for (int number = 0; number < static_cast<int>(partials.size()); ++number) {
    stack.push_back({partials[static_cast<size_t>(number)], number});
    while (stack.size() > 1 && are_siblings(num_leaves, stack[stack.size() - 2].range, stack.back().range)) {
      additions.push_back({stack[stack.size() - 2].number, stack.back().number});
      stack[stack.size() - 2].range.last = stack.back().range.last;
      stack.pop_back();
    }
  }
  assert(stack.size() == 1);
  return additions;
}

bool ranks_are_branches(int num_leaves, int num_ranks) {
  return num_ranks == 1 || std::has_single_bit(static_cast<unsigned>(num_leaves / num_ranks));
}

}  // namespace trireme
