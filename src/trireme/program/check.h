// Proves that a program is whole before anything runs: every gradient is summed once, along the tree.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

/// The programs of all ranks, in order. Throws Error that names the rank and the instruction at fault: a Backward
/// without its Forward, a slot that is read before it is written or overwritten before it is summed, a micro-batch that
/// is missing or counted twice, a sum that leaves the tree, a group that one rank reduces and another does not, or
/// ranks that reduce groups in different orders (which would be a deadlock).
void check_programs(const std::vector<Program>& programs, int num_leaves);

}  // namespace trireme
