// Shards over replicas what each would otherwise hold: ZeRO's stages, as instructions in any program.
//
// 1 shards the optimizer's state: of a group's sum each replica gets its part (ReduceScatter instead of AllReduce) and
// updates the weights there; the new weights are gathered before their first use. 2 shards the gradients as well, 3
// also the weights: they are gathered before every pass that uses them, and freed behind it. The order of the gathers
// is that of the layers.
#pragma once

#include <algorithm>

#include "trireme/program/instruction.h"

namespace trireme {

/// The same step with sharded groups.
Program shard_over_replicas(Program program, const ZeroShape& shape);

/// How many bytes of gradients form a group where the user does not say: one rule for the trainer and for whoever
/// predicts it.
/// `keeps_whole`: whole weights and gradients stay on the rank, whose gradients have `all_bytes`. Otherwise groups are
/// gathered or scattered, several at a time, which must be little beside what stays: each is at most a 128th.
inline double derived_bucket_bytes(bool keeps_whole, double all_bytes) {
  constexpr double kMost = 4 << 20;
  return keeps_whole ? kMost : std::clamp(all_bytes / 128, 1.0, kMost);
}

}  // namespace trireme
