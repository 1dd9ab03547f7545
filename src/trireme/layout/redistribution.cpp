#include "trireme/layout/redistribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <set>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kCallCost = 64;  // elements that could be sent in the time it takes to start a call
constexpr double kLocalCost = 1;  // of a step without communication: not zero, so that useless steps are avoided

using State = std::vector<Placement>;

/// A key that distinguishes states, for an ordered set.
std::vector<int64_t> key_of(const State& state) {
  std::vector<int64_t> key;
  for (const Placement& p : state) {
    for (const int64_t value : {static_cast<int64_t>(p.kind), static_cast<int64_t>(p.op), static_cast<int64_t>(p.dim),
                                p.stretches, p.unit, int64_t{p.ratio[0]}, int64_t{p.ratio[1]}}) {
      key.push_back(value);
    }
  }
  return key;
}

double local_elements(const State& state, const std::vector<int>& axis_sizes, const std::vector<int64_t>& sizes) {
  double elements = 1;
  for (const int64_t size : sizes) elements *= static_cast<double>(size);
  for (size_t axis = 0; axis < state.size(); ++axis) {
    if (state[axis].is_shard()) elements /= axis_sizes[axis];
  }
  return elements;
}

/// An axis may change how it shards a dimension only if no later axis shards it, since later axes shard what it leaves.
bool is_free(const State& state, size_t axis, const Placement& placement) {
  if (!placement.is_shard()) return true;
  return std::none_of(state.begin() + static_cast<std::ptrdiff_t>(axis) + 1, state.end(),
                      [&](const Placement& later) { return later.is_shard(placement.dim); });
}

void check(const std::vector<Placement>& placements, const std::vector<int>& axis_sizes, size_t num_dims) {
  if (placements.size() != axis_sizes.size()) {
    throw UsageError(fmt::format("{} placements for a mesh of {} axes", placements.size(), axis_sizes.size()),
                     "give one placement for each axis of the mesh");
  }
  for (const Placement& placement : placements) {
    if (placement.is_shard() && (placement.dim < 0 || placement.dim >= static_cast<int>(num_dims))) {
      throw UsageError(fmt::format("{} of a tensor with {} dimensions", placement.to_string(), num_dims));
    }
  }
}

/// The common case, without a search: one axis changes, and no other prevents it.
std::optional<RedistributionStep> single_step(const State& from, const State& to) {
  std::optional<size_t> changed;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] == to[axis]) continue;
    if (changed) return std::nullopt;
    changed = axis;
  }
  if (!changed || (to[*changed].is_partial() && !from[*changed].is_replicate())) return std::nullopt;
  const Placement &here = from[*changed], &next = to[*changed];
  if (!is_free(from, *changed, here) || !is_free(from, *changed, next)) return std::nullopt;
  return RedistributionStep{static_cast<int>(*changed), movement_between(here, next), here, next};
}

struct Reached {
  double cost = 0;
  State state;
  std::vector<RedistributionStep> steps;
  bool operator>(const Reached& other) const { return cost > other.cost; }
};

}  // namespace

std::string_view name_of(Movement movement) {
  constexpr std::string_view kNames[] = {"slice", "spread", "all-gather", "all-to-all", "all-reduce", "reduce-scatter"};
  return kNames[static_cast<size_t>(movement)];
}

Movement movement_between(const Placement& from, const Placement& to) {
  if (from.is_replicate()) return to.is_shard() ? Movement::kSlice : Movement::kSpread;
  if (to.is_partial()) {
    throw UsageError(fmt::format("{} cannot become {}", from.to_string(), to.to_string()),
                     "go through replicate, which is cut or spread without communication");
  }
  if (from.is_shard()) return to.is_shard() ? Movement::kAllToAll : Movement::kAllGather;
  return to.is_shard() ? Movement::kReduceScatter : Movement::kAllReduce;
}

double cost_of(Movement movement, int axis_size, double local) {
  const double others = axis_size - 1, part = others / axis_size;
  switch (movement) {
    case Movement::kSlice:
    case Movement::kSpread:
      return kLocalCost;
    case Movement::kAllGather:
      return kCallCost + others * local;
    case Movement::kAllToAll:
    case Movement::kReduceScatter:
      return kCallCost + part * local;
    case Movement::kAllReduce:
      return kCallCost + 2 * part * local;
  }
  return 0;
}

std::vector<RedistributionStep> plan_redistribution(const std::vector<Placement>& from,
                                                    const std::vector<Placement>& to,
                                                    const std::vector<int>& axis_sizes,
                                                    const std::vector<int64_t>& sizes) {
  check(from, axis_sizes, sizes.size());
  check(to, axis_sizes, sizes.size());
  if (const std::optional<RedistributionStep> step = single_step(from, to)) return {*step};
  // Each axis is in its initial state, in its final state or replicated: few states, searched from the nearest on.
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> open;
  std::set<std::vector<int64_t>> done;
  open.push({0, from, {}});
  while (!open.empty()) {
    const Reached now = open.top();
    open.pop();
    if (now.state == to) return now.steps;
    if (!done.insert(key_of(now.state)).second) continue;
    const double local = local_elements(now.state, axis_sizes, sizes);
    for (size_t axis = 0; axis < axis_sizes.size(); ++axis) {
      const Placement& here = now.state[axis];
      for (const Placement& next : {to[axis], Placement::replicate()}) {
        if (next == here || !is_free(now.state, axis, here) || !is_free(now.state, axis, next)) continue;
        if (next.is_partial() && !here.is_replicate()) continue;
        const Movement movement = movement_between(here, next);
        Reached reached = now;
        reached.cost += cost_of(movement, axis_sizes[axis], local);
        reached.state[axis] = next;
        reached.steps.push_back({static_cast<int>(axis), movement, here, next});
        open.push(std::move(reached));
      }
    }
  }
  throw UsageError("there is no way from one layout to the other", "go through replicate");
}

std::vector<int64_t> sizes_before_axis(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                       const std::vector<int>& axis_sizes, const std::vector<int>& coordinates,
                                       int axis) {
  std::vector<int64_t> local = sizes;
  for (size_t i = 0; i < static_cast<size_t>(axis); ++i) {
    if (!placements[i].is_shard()) continue;
    int64_t& extent = local[static_cast<size_t>(placements[i].dim)];
    extent = local_extent(placements[i], extent, axis_sizes[i], coordinates[i]);
  }
  return local;
}

std::vector<int64_t> local_sizes(const std::vector<int64_t>& sizes, const std::vector<Placement>& placements,
                                 const std::vector<int>& axis_sizes, const std::vector<int>& coordinates) {
  return sizes_before_axis(sizes, placements, axis_sizes, coordinates, static_cast<int>(placements.size()));
}

}  // namespace trireme
