#include "trireme/simulate/collective_cost.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

/// Bytes at which half of a collective's channels are full.
constexpr double kRampBytes = 2e6;

/// Bytes that cross a level of `n` parts per byte of the vector.
double fraction(CollectiveKind kind, int64_t n) {
  const double parts = static_cast<double>(n);
  return (kind == CollectiveKind::kAllReduce ? 2 : 1) * (parts - 1) / parts;
}

/// Number of latencies paid at such a level.
double rounds(CollectiveKind kind, int64_t n) {
  if (kind == CollectiveKind::kAllToAll) return static_cast<double>(n - 1);
  return (kind == CollectiveKind::kAllReduce ? 2 : 1) * std::ceil(std::log2(static_cast<double>(n)));
}

/// Bandwidth of a device in a group of n inside its host. Without a switch, its links are divided among its neighbours.
double inside_bandwidth(const Cluster& cluster, int64_t n) {
  const double whole = cluster.inside.effective();
  if (cluster.inside.is_switched || n >= cluster.devices_per_host) return whole;
  return whole * static_cast<double>(n - 1) / (cluster.devices_per_host - 1);
}

}  // namespace

RankGroup group_on(const Cluster& cluster, int64_t size, int64_t stride) {
  RankGroup group{.size = size};
  const int64_t per_host = cluster.devices_per_host;
  group.local = std::clamp<int64_t>(per_host / stride, 1, size);
  group.hosts = (size + group.local - 1) / group.local;
  return group;
}

double collective_seconds(CollectiveKind kind, double bytes, const RankGroup& group, const Cluster& cluster) {
  if (group.size <= 1 || bytes <= 0) return 0;
  double latency = 0, inside = 0, between = 0;
  if (group.local > 1) {
    latency += rounds(kind, group.local) * cluster.inside.latency_us * 1e-6;
    inside = fraction(kind, group.local) * bytes / inside_bandwidth(cluster, group.local);
    if (kind == CollectiveKind::kAllReduce) inside /= cluster.inside.sum_gain;
  }
  if (group.hosts > 1) {
    latency += rounds(kind, group.hosts) * cluster.between.latency_us * 1e-6;
    // The group gets the fraction of the host's network that its ranks are of the host's devices. In an all-to-all
    // every rank sends its own bytes.
    const double ranks = kind == CollectiveKind::kAllToAll ? 1 : static_cast<double>(group.local);
    const double part = cluster.between.effective() * ranks / cluster.devices_per_host;
    between = fraction(kind, group.hosts) * bytes / part;
  }
  const double ramp = (group.hosts > 1 ? cluster.between : cluster.inside).ramp_us * 1e-6;
  return latency + ramp * bytes / (bytes + kRampBytes) + std::max(inside, between);
}

double message_seconds(double bytes, int64_t distance, const Cluster& cluster) {
  if (distance < cluster.devices_per_host) {
    const NetworkLink& link = cluster.inside;
    return link.latency_us * 1e-6 + bytes / inside_bandwidth(cluster, 2);
  }
  const NetworkLink& link = cluster.between;
  return link.latency_us * 1e-6 + bytes * cluster.devices_per_host / link.effective();
}

}  // namespace trireme
