// Plans a change of layout: the cheapest sequence of collectives, one mesh axis at a time.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/layout/placement.h"

namespace trireme {

/// What one step does along its axis.
enum class Movement : uint8_t {
  kSlice,          ///< replicate → shard; no communication
  kSpread,         ///< replicate → partial: one rank keeps the value, the others have zeros; no communication
  kAllGather,      ///< shard → replicate
  kAllToAll,       ///< shard → shard of another dimension, or of the same one in another way
  kAllReduce,      ///< partial → replicate
  kReduceScatter,  ///< partial → shard
};
std::string_view name_of(Movement movement);

struct RedistributionStep {
  int axis = 0;
  Movement movement = Movement::kSlice;
  Placement from, to;
  bool operator==(const RedistributionStep&) const = default;
};

/// `from`, `to` and `axis_sizes` have one entry per axis. An axis that shards a dimension again shards what earlier
/// axes left. Throws UsageError for impossible changes: a shard of a missing dimension, or a change to partial from
/// anything but replicate.
std::vector<RedistributionStep> plan_redistribution(const std::vector<Placement>& from,
                                                    const std::vector<Placement>& to,
                                                    const std::vector<int>& axis_sizes,
                                                    const std::vector<int64_t>& sizes);

/// Elements that a rank sends in a step, if it holds `local` elements before it, plus a small cost of the call itself,
/// so that fewer calls win among equals.
double cost_of(Movement movement, int axis_size, double local);

/// The movement from one placement to another along one axis; they differ.
Movement movement_between(const Placement& from, const Placement& to);

/// Sizes of the part of a tensor that a rank holds.
std::vector<int64_t> local_sizes(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                 const std::vector<int>& axis_sizes, const std::vector<int>& coordinates);

/// The sizes that `axis` shards: what all earlier axes leave to a rank.
std::vector<int64_t> sizes_before_axis(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                       const std::vector<int>& axis_sizes, const std::vector<int>& coordinates,
                                       int axis);

}  // namespace trireme
