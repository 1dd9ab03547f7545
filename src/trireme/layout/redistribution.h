// From one layout of a tensor to another: the cheapest sequence of collectives, one axis of the mesh at a time.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/layout/placement.h"

namespace trireme {

/// What one step does along its axis.
enum class Movement : uint8_t {
  kSlice,          ///< replicate → shard; nothing moves
  kSpread,         ///< replicate → partial: one rank keeps the value, the others have zeros; nothing moves
  kAllGather,      ///< shard → replicate
  kAllToAll,       ///< shard → shard of another dimension, or cut elsewhere
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

/// Placements are one an axis; `axis_sizes` likewise. An axis that cuts a dimension again cuts what earlier axes left.
/// Throws UsageError for what cannot be: a shard of a dimension that is not there, or anything → partial but replicate.
std::vector<RedistributionStep> plan_redistribution(const std::vector<Placement>& from,
                                                    const std::vector<Placement>& to,
                                                    const std::vector<int>& axis_sizes,
                                                    const std::vector<int64_t>& sizes);

/// Elements that a rank sends for a step of a tensor of which it holds `local` elements before it, and a little for
/// the call itself, so that fewer calls win among equals.
double cost_of(Movement movement, int axis_size, double local);

/// The movement from one placement to another along one axis; they differ.
Movement movement_between(const Placement& from, const Placement& to);

/// What a rank holds of a tensor.
std::vector<int64_t> local_sizes(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                 const std::vector<int>& axis_sizes, const std::vector<int>& coordinates);

/// The sizes that `axis` cuts: those that all earlier axes leave to a rank.
std::vector<int64_t> sizes_before_axis(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                       const std::vector<int>& axis_sizes, const std::vector<int>& coordinates,
                                       int axis);

}  // namespace trireme
