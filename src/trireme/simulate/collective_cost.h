// How long collectives take on the hierarchy of a cluster, where groups of ranks share its links.
#pragma once

#include <cstdint>

#include "trireme/simulate/cluster.h"

namespace trireme {

enum class CollectiveKind { kAllReduce, kReduceScatter, kAllGather, kAllToAll };

/// A group of ranks: `local` of them on each of `hosts` hosts. All groups alike work at the same time, so a group has
/// its ranks' fraction of its hosts' network.
struct RankGroup {
  int64_t size = 1;
  int64_t local = 1;
  int64_t hosts = 1;
};

/// The group of an axis of `size` ranks, neighbours `stride` devices apart.
RankGroup group_on(const Cluster& cluster, int64_t size, int64_t stride);

/// Seconds for `bytes`: of the whole vector (all-reduce, reduce-scatter, all-gather), or that each rank sends
/// (all-to-all).
double collective_seconds(CollectiveKind kind, double bytes, const RankGroup& group, const Cluster& cluster);

/// Seconds of a message between devices `distance` apart, each device of a host sending one at the same time.
double message_seconds(double bytes, int64_t distance, const Cluster& cluster);

}  // namespace trireme
