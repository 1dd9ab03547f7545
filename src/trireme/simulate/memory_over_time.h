// A rank's memory over the course of a step, for pictures and traces.
#pragma once

#include <vector>

#include "trireme/simulate/simulate.h"

namespace trireme {

/// A rank's memory from `seconds` until the next point.
struct MemoryPoint {
  double seconds = 0;
  RankMemory memory;
};

/// Returns points from the start of the step to the rank's end, in order. Only activations and workspace vary; the rest
/// is constant, as memory_model.h computes it. The maximum is at most the memory that the simulation reports for the
/// rank.
std::vector<MemoryPoint> memory_over_time(const Simulation& simulation, size_t rank);

}  // namespace trireme
