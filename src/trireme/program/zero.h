// ZeRO: rewrites any program so that replicas shard what each would otherwise hold in full.
//
// Stage 1 shards the optimizer state: each replica gets its shard of a group's sum (ReduceScatter instead of AllReduce)
// and updates its shard of the weights; new weights are all-gathered before their first use. Stage 2 also shards the
// gradients. Stage 3 also shards the weights: they are all-gathered before every pass that uses them and freed after
// it. Groups are gathered in the order in which the pass uses their layers.
#pragma once

#include <algorithm>

#include "trireme/program/instruction.h"

namespace trireme {

/// Returns the program of the same step with sharded groups; unchanged for ZeRO stage 0.
Program shard_over_replicas(Program program, const ZeroShape& shape);

/// Default size of a gradient group (bucket) in bytes: one rule for trainer and simulator. `all_bytes`: all gradients
/// of the rank. `keeps_whole`: full weights and gradients stay on the rank. Otherwise several groups at a time are
/// gathered or scattered, which must take little memory next to the shards: each is at most 1/128 of `all_bytes`.
inline double derived_bucket_bytes(bool keeps_whole, double all_bytes) {
  constexpr double kMost = 4 << 20;
  return keeps_whole ? kMost : std::clamp(all_bytes / 128, 1.0, kMost);
}

}  // namespace trireme
