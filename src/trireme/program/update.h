// Writes the end of a step as instructions: gradient exchange over replicas, tied weights, norm and update.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

/// Rewrites a program of this `replica` that all-reduces gradients and ends in one update for the exchange, norm and
/// tied weights of `shape`. Leaves its instructions as they are for a plain sum without norm and tied weights. A
/// program with several updates is returned unchanged.
///
/// The last group of each stage holds the step's values (loss, statistics), not gradients, and is
/// all-reduced over replicas whatever the exchange.
Program with_update(Program program, const UpdateShape& shape, int replica);

}  // namespace trireme
