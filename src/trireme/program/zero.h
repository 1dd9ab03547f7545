// Replicas that share what each would otherwise hold: ZeRO's stages, as instructions in any program.
//
// 1 shares the optimizer's state: of a group's sum each replica gets its part (ReduceScatter instead of AllReduce) and
// updates the weights there; the new weights are gathered before their first use. 2 shares the gradients as well, 3
// also the weights: they are gathered before every pass that uses them. The order of the gathers is that of the layers.
#pragma once

#include <vector>

#include "trireme/program/instruction.h"

namespace trireme {

struct ZeroShape {
  int zero = 0;                    ///< 0 … 3
  std::vector<int> shared_groups;  ///< of each stage, the first so many groups; empty: all
  bool keep = false;               ///< 3: weights stay from the forward to the backward pass
  /// Gradients of each micro-batch are scattered at once and summed as parts: less memory, other bits.
  bool each_micro_batch = false;
};

/// The same step with shared groups.
Program share_over_replicas(Program program, const ZeroShape& shape);

}  // namespace trireme
