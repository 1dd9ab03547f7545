// How a rank's memory goes up and down during a step: for pictures and traces.
#pragma once

#include <vector>

#include "trireme/simulate/simulate.h"

namespace trireme {

/// What a rank holds from an instant on.
struct MemoryPoint {
  double seconds = 0;
  RankMemory memory;
};

/// From the start of the step to the rank's end, in order. Activations come and go; the rest stays, as the model of
/// memory has it. The most at once is what the simulation says of the rank.
std::vector<MemoryPoint> memory_over_time(const Simulation& simulation, size_t rank);

}  // namespace trireme
