// The end of a step as instructions: how replicas exchange gradients, tied weights, the norm, the update.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

/// Rewrites a program whose replicas all-reduce their gradients, and whose last instruction is the update. Without a
/// norm and tied weights, a sum over replicas stays as it is; so does a program with several updates.
///
/// `replica`: whose program it is. Where the exchange is no sum, the last group of each stage is still all-reduced: it
/// holds the step's values, not gradients.
Program with_update(Program program, const UpdateShape& shape, int replica);

}  // namespace trireme
