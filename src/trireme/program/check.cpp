#include "trireme/program/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// A sum, written as an expression over micro-batch numbers: equal text means equal bits.
using Sum = std::string;

Sum add(const Sum& a, const Sum& b) { return "(" + a + "+" + b + ")"; }

Sum expected_sum(int first, int last, int leaf_size) {
  if (last - first == 1) {
    Sum leaf = std::to_string(first * leaf_size);
    for (int i = 1; i < leaf_size; ++i) leaf = add(leaf, std::to_string(first * leaf_size + i));
    return leaf;
  }
  const int split = first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
  return add(expected_sum(first, split, leaf_size), expected_sum(split, last, leaf_size));
}

/// Along the tree over ranks that an ordered all-reduce follows.
Sum sum_directly(const std::vector<Sum>& sums, size_t first, size_t last) {
  if (last - first == 1) return sums[first];
  const size_t split = first + std::bit_floor(last - first - 1);
  return add(sum_directly(sums, first, split), sum_directly(sums, split, last));
}

struct RankState {
  std::vector<std::vector<Sum>> slots;  // [slot][group]; empty: nothing to read
  std::vector<int> reduced;             // groups, in order
};

class Checker {
 public:
  Checker(const std::vector<Program>& programs, int num_leaves) : programs_(programs), num_leaves_(num_leaves) {}

  void run() {
    for (rank_ = 0; rank_ < programs_.size(); ++rank_) states_.push_back(run_rank(programs_[rank_]));
    const Program& first = programs_.front();
    for (rank_ = 0; rank_ < programs_.size(); ++rank_) {
      const Program& program = programs_[rank_];
      if (program.num_groups != first.num_groups || program.num_micro_batches != first.num_micro_batches ||
          program.across != first.across || states_[rank_].reduced != states_.front().reduced) {
        fail("it reduces other groups, or in another order, than rank 0: they would wait for each other");
      }
    }
    const Sum expected = expected_sum(0, num_leaves_, first.num_micro_batches / num_leaves_);
    for (int group = 0; group < first.num_groups; ++group) {
      const Sum sum = sum_across(first, static_cast<size_t>(group));
      if (sum != expected) {
        throw Error(fmt::format("the sum of group {} is {} where the tree demands {}", group, sum, expected));
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& cause) const {
    throw Error(fmt::format("program of rank {}{}: {}", rank_,
                            instruction_ == nullptr ? "" : ", " + instruction_->to_string(), cause));
  }

  RankState run_rank(const Program& program) {
    RankState state;
    state.slots.assign(static_cast<size_t>(program.num_slots),
                       std::vector<Sum>(static_cast<size_t>(program.num_groups)));
    int forwarded = -1;
    bool stepped = false;
    for (const Instruction& instruction : program.instructions) {
      instruction_ = &instruction;
      if (stepped) fail("it comes after the optimizer's step");
      if (std::max(instruction.slot, instruction.from_slot) >= program.num_slots) fail("there is no such slot");
      if (instruction.group >= program.num_groups) fail("there is no such group");
      switch (instruction.op) {
        case OpCode::kForward:
          forwarded = instruction.micro_batch;
          break;
        case OpCode::kBackward:
          if (forwarded != instruction.micro_batch) fail("its Forward is missing");
          forwarded = -1;
          for (Sum& sum : state.slots[static_cast<size_t>(instruction.slot)]) {
            if (instruction.add == sum.empty()) fail(sum.empty() ? "it adds to nothing" : "it overwrites a sum");
            sum = instruction.add ? add(sum, std::to_string(instruction.micro_batch))
                                  : std::to_string(instruction.micro_batch);
          }
          break;
        case OpCode::kAddSlot: {
          Sum& into = at(state, instruction.slot, instruction.group);
          Sum& from = at(state, instruction.from_slot, instruction.group);
          if (into.empty() || from.empty()) fail("it reads an empty slot");
          into = add(into, from);
          from.clear();
          break;
        }
        case OpCode::kAllReduce:
          state.reduced.push_back(instruction.group);
          break;
        case OpCode::kOptimizerStep:
          stepped = true;
          break;
      }
    }
    instruction_ = nullptr;
    if (!stepped) fail("there is no step of the optimizer");
    std::vector<int> sorted = state.reduced;
    std::sort(sorted.begin(), sorted.end());
    const bool each_once = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (programs_.size() > 1 && (!each_once || sorted.size() != static_cast<size_t>(program.num_groups))) {
      fail("each group must be reduced once");
    }
    return state;
  }

  static Sum& at(RankState& state, int slot, int group) {
    return state.slots[static_cast<size_t>(slot)][static_cast<size_t>(group)];
  }

  Sum sum_across(const Program& program, size_t group) const {
    std::vector<Sum> sums;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const int count = program.across.direct ? 1 : program.across.partials_of_rank[rank];
      for (int slot = 0; slot < static_cast<int>(states_[rank].slots.size()); ++slot) {
        const Sum& sum = states_[rank].slots[static_cast<size_t>(slot)][group];
        if (slot < count) sums.push_back(sum);
        if ((slot < count) == sum.empty()) {
          throw Error(fmt::format("rank {} ends with {} in slot {} of group {}", rank, sum.empty() ? "nothing" : sum,
                                  slot, group));
        }
      }
    }
    if (program.across.direct) return sum_directly(sums, 0, sums.size());
    for (const Addition& addition : program.across.additions) {
      sums[static_cast<size_t>(addition.into)] =
          add(sums[static_cast<size_t>(addition.into)], sums[static_cast<size_t>(addition.from)]);
    }
    return sums[0];
  }

  const std::vector<Program>& programs_;
  const int num_leaves_;
  size_t rank_ = 0;
  const Instruction* instruction_ = nullptr;
  std::vector<RankState> states_;
};

}  // namespace

void check_programs(const std::vector<Program>& programs, int num_leaves) { Checker(programs, num_leaves).run(); }

}  // namespace trireme
