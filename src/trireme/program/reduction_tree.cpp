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
    if (left.first < split && right.last > split) return false;  // straddles the split
    (right.last <= split ? branch.last : branch.first) = split;
  }
  return false;
}

LeafSchedule schedule_leaves(int num_leaves, LeafRange own, int lanes) {
  assert(0 <= own.first && own.first < own.last && own.last <= num_leaves && (own.last - own.first) % lanes == 0);
  struct Branch {
    LeafRange range;
    int slot = 0;
    bool done = false;
  };
  LeafSchedule schedule;
  std::vector<Branch> branches;           // in order of leaves
  std::vector<bool> taken;                // by slot
  const auto branch_at = [&](int leaf) {  // the branch with this leaf, or else the next one
    return std::find_if(branches.begin(), branches.end(), [&](const Branch& each) { return each.range.last > leaf; });
  };
  const auto begin = [&](int leaf) {
    const auto free = std::find(taken.begin(), taken.end(), false);
    const auto slot = free - taken.begin();
    if (free == taken.end()) taken.push_back(false);
    taken[static_cast<size_t>(slot)] = true;
    branches.insert(branch_at(leaf), {{leaf, leaf + 1}, static_cast<int>(slot)});
  };
  const auto end = [&](int leaf) {
    branch_at(leaf)->done = true;
    LeafStep step{leaf, branch_at(leaf)->slot, {}};
    const auto add_next = [&](std::vector<Branch>::iterator into) {  // adds the next branch to `into` if the tree does
      const auto from = into + 1;
      if (from == branches.end() || !into->done || !from->done) return false;
      if (into->range.last != from->range.first || !are_siblings(num_leaves, into->range, from->range)) return false;
      step.additions.push_back({into->slot, from->slot});
      taken[static_cast<size_t>(from->slot)] = false;
      into->range.last = from->range.last;
      branches.erase(from);
      return true;
    };
    while (add_next(branch_at(leaf)) || (branch_at(leaf) != branches.begin() && add_next(branch_at(leaf) - 1))) {
    }
    schedule.steps.push_back(std::move(step));
  };
  const int of_lane = (own.last - own.first) / lanes;
  for (int n = 0; n < of_lane; ++n) {  // a leaf of each lane: all begin before any ends
    for (int lane = 0; lane < lanes; ++lane) begin(own.first + lane * of_lane + n);
    for (int lane = 0; lane < lanes; ++lane) end(own.first + lane * of_lane + n);
  }
  schedule.num_slots = static_cast<int>(taken.size());

  // Renumber slots so that the partial sums come first, in order.
  std::vector<int> name(taken.size(), -1);
  int next = 0;
  for (const Branch& branch : branches) {
    schedule.partials.push_back(branch.range);
    name[static_cast<size_t>(branch.slot)] = next++;
  }
  for (int& each : name) each = each < 0 ? next++ : each;
  for (LeafStep& step : schedule.steps) {
    step.slot = name[static_cast<size_t>(step.slot)];
    for (Addition& addition : step.additions) {
      addition = {name[static_cast<size_t>(addition.into)], name[static_cast<size_t>(addition.from)]};
    }
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
