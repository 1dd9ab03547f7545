// Peak memory of a rank that runs its program. It depends only on the order of the list, not on times.
#pragma once

#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

struct PeakMemory {
  double activations = 0;   ///< stage activations / stages on the rank: 1 is one micro-batch of the rank
  double inputs = 0;        ///< additional stage inputs kept for recomputation; same unit
  int weight_versions = 1;  ///< most versions of one stage's weights, including the newest
  int receive_buffers = 0;  ///< receives posted whose message has not been used yet
  bool operator==(const PeakMemory&) const = default;
};

/// Peaks of one rank. Activations are held from the forward pass until the weight gradients have been computed.
PeakMemory peak_memory(const Program& program);

/// The peak of `activations` of each rank, from the order of its computations.
std::vector<double> peak_activations(const Schedule& schedule);

/// Activations held after each instruction, in the unit of PeakMemory.
std::vector<double> activations_held(const Program& program);

}  // namespace trireme
