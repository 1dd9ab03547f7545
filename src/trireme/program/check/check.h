// Proves that a program is correct before anything runs: every gradient is computed once and summed once, along the
// tree; every send has its receive; no rank waits forever.
//
// It executes the programs of all ranks together, on micro-batch numbers instead of tensors. What a rank may do next
// never depends on timing, so one execution stands for all ([Note: Waiting]).
#pragma once

#include "trireme/program/instruction.h"
#include "trireme/program/memory.h"

namespace trireme {

struct CheckOptions {
  /// A send blocks while this many earlier sends of its channel have no posted receive; that must not deadlock.
  int sends_under_way = 1;
};

/// Memory and staleness of programs that passed the check.
struct CheckReport {
  std::vector<PeakMemory> ranks;  ///< same order as the programs
  /// For each stage, the largest number of updates between the weights that a gradient was computed with and the
  /// weights that it updates; 0 for every schedule with one update.
  std::vector<int> staleness;
};

/// `programs`: all ranks in the order of ProgramPlaces: replica by replica, in each along the pipeline; rank by rank if
/// ranks differ in their replicas. `num_leaves`: leaves of one update.
///
/// Throws Error that names the rank, the instruction and the reason: a computation that lacks its input, runs twice or
/// uses other weights than its forward pass; a message that is never received, goes to the wrong rank or is out of
/// order; a deadlock; a slot that is read before it is written or overwritten before it is summed; a micro-batch that
/// is missing or counted twice; a sum that is not in the tree; replicas whose collectives differ, or differ in order;
/// weights that are stashed and never freed; a pass whose sharded weights have not been gathered since they were freed
/// or updated; a sharded group that is not reduce-scattered. Time is linear in the total number of instructions.
CheckReport check_programs(const std::vector<Program>& programs, int num_leaves, const CheckOptions& options = {});

/// Calls check_programs() and returns the program of one rank. Whoever executes a program takes it from here, so that
/// the list that runs is the list that was checked. `report`, unless null, receives the result of the check.
Program checked_program(std::vector<Program> programs, int num_leaves, int pipeline_rank, int replica = 0,
                        CheckReport* report = nullptr);

}  // namespace trireme
