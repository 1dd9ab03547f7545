// What a rank does in one step, as plain data: a list of instructions. Checker, printer and runtime read the same list.
//
// A gradient *group* is a range of the flat gradient that travels together (a bucket); a *slot* is one copy of the flat
// gradient. An instruction with a group may run as soon as its group is ready: while the Backward before it is still
// under way, once that has filled the group. That is how communication hides behind computation.
#pragma once

#include <string>
#include <vector>

#include "trireme/program/reduction_tree.h"

namespace trireme {

enum class OpCode {
  kForward,        ///< micro_batch
  kBackward,       ///< micro_batch → slot, set or added
  kAddSlot,        ///< group: slot += from_slot
  kAllReduce,      ///< group: slots 0 … of all ranks → slot 0 of all
  kOptimizerStep,  ///< slot 0, all groups
};

struct Instruction {
  OpCode op = OpCode::kForward;
  int micro_batch = -1;  ///< of the whole step, counted over all ranks
  int slot = -1;
  int from_slot = -1;
  bool add = false;  ///< kBackward: adds to the slot instead of setting it
  int group = -1;    ///< -1: all groups

  bool operator==(const Instruction&) const = default;
  std::string to_string() const;
};

/// How the partial sums of all ranks become one ([Note: Leaves]).
struct CrossRankSum {
  bool direct = true;                 ///< an ordered all-reduce of slot 0
  std::vector<int> partials_of_rank;  ///< otherwise: how many slots each rank brings, rank by rank
  std::vector<Addition> additions;    ///< and how they are summed, numbered through all ranks
  bool operator==(const CrossRankSum&) const = default;
};

struct Program {
  std::vector<Instruction> instructions;
  int num_micro_batches = 0;  ///< of the whole step
  int num_groups = 0;
  int num_slots = 0;
  int num_ranks = 1;
  CrossRankSum across;

  /// One instruction a line.
  std::string to_string() const;
  bool operator==(const Program&) const = default;
};

}  // namespace trireme
