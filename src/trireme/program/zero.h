// Replicas that share what each would otherwise hold: ZeRO's stages, as instructions in any program.
//
// 1 shares the optimizer's state: of a group's sum each replica gets its part (ReduceScatter instead of AllReduce) and
// updates the weights there; the new weights are gathered before their first use. 2 shares the gradients as well, 3
// also the weights: they are gathered before every pass that uses them, and freed behind it. The order of the gathers
// is that of the layers.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

/// The same step with shared groups.
Program share_over_replicas(Program program, const ZeroShape& shape);

}  // namespace trireme
