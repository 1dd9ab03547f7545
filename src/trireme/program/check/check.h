// Proves that a program is whole before anything runs: every gradient is made once and summed once, along the tree;
// every message has its two ends; nobody waits for ever.
//
// It runs the programs of all ranks together, on numbers of micro-batches instead of tensors. What a rank may do next
// never depends on who was faster, so one run stands for all.
#pragma once

#include "trireme/program/instruction.h"
#include "trireme/program/memory.h"

namespace trireme {

struct CheckOptions {
  /// A send waits while so many earlier ones of its channel have found no receive: no deadlock may come of it.
  int sends_under_way = 1;
};

/// What a program that was found whole costs.
struct CheckReport {
  std::vector<PeakMemory> ranks;  ///< in the order of the programs
  /// Of each stage: updates that its weights have had, at most, between those that a gradient was computed with and
  /// those that it changes; 0 for every schedule with one update.
  std::vector<int> staleness;
};

/// The programs of all ranks: replica by replica, and in each of them along the pipeline. `num_leaves`: of an update.
///
/// Throws Error that names the rank, the instruction and the reason: a computation without its input, or twice, or with
/// other weights than its forward pass; a message that nobody receives, that goes to the wrong rank or out of order;
/// ranks that wait for each other; a slot that is read before it is written or overwritten before it is summed, a
/// micro-batch that is missing or counted twice, a sum that leaves the tree; replicas that reduce other groups, or in
/// another order; weights that are stashed and never freed; a pass whose sharded weights have not been gathered since
/// they were freed or updated, a sharded group that is not scattered. The work grows with the instructions of all
/// ranks.
CheckReport check_programs(const std::vector<Program>& programs, int num_leaves, const CheckOptions& options = {});

/// check_programs(), then the program of one rank: whoever executes a program takes it from here, so that the list that
/// runs is the list that was checked.
Program checked_program(std::vector<Program> programs, int num_leaves, int pipeline_rank, int replica = 0,
                        CheckReport* report = nullptr);

}  // namespace trireme
