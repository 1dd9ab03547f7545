// What a rank holds at most while it runs its program. The order of its list alone decides it, not the times.
#pragma once

#include <vector>

#include "trireme/program/instruction.h"

namespace trireme {

struct PeakMemory {
  double activations = 0;   ///< of its part of a micro-batch: with n stages on the rank, each counts 1/n
  double inputs = 0;        ///< beside them: inputs alone, kept for recomputation; counted alike
  int weight_versions = 1;  ///< of a stage, the newest included
  int receive_buffers = 0;  ///< messages that have been posted and not used
  bool operator==(const PeakMemory&) const = default;
};

/// One rank's. Activations are held from a forward pass until the weight gradients are made.
PeakMemory peak_memory(const Program& program);

/// Activations held after each instruction.
std::vector<double> activations_held(const Program& program);

}  // namespace trireme
