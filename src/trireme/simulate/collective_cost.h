// Times of collectives and messages on a cluster's network hierarchy, including contention between groups.
#pragma once

#include <cstdint>

#include "trireme/simulate/cluster.h"

namespace trireme {

enum class CollectiveKind { kAllReduce, kReduceScatter, kAllGather, kAllToAll };

/// A group of ranks: `local` of them on each of `hosts` hosts. All groups of an axis communicate at the same time, so a
/// group gets the fraction local / devices_per_host of its hosts' network.
struct RankGroup {
  int64_t size = 1;
  int64_t local = 1;
  int64_t hosts = 1;
};

/// Returns the group along an axis of `size` ranks that are `stride` devices apart.
RankGroup group_on(const Cluster& cluster, int64_t size, int64_t stride);

/// Seconds of a collective. `bytes` is the size of the whole vector; for an all-to-all, what each rank sends.
double collective_seconds(CollectiveKind kind, double bytes, const RankGroup& group, const Cluster& cluster);

/// Seconds of a message between devices `distance` apart, while every device of the host sends one.
double message_seconds(double bytes, int64_t distance, const Cluster& cluster);

}  // namespace trireme
