#include "trireme/layout/resharding.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/layout/redistribution.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

std::vector<int> coordinates_of(int rank, const std::vector<int>& axis_sizes) {
  std::vector<int> coordinates(axis_sizes.size());
  for (size_t axis = axis_sizes.size(); axis-- > 0;) {
    coordinates[axis] = rank % axis_sizes[axis];
    rank /= axis_sizes[axis];
  }
  return coordinates;
}

/// The elements of `part`, which index into `held`, as elements of the whole dimension.
std::vector<Piece> pieces_within(const std::vector<Piece>& held, const Piece& part) {
  std::vector<Piece> found;
  int64_t before = 0;
  for (const Piece& piece : held) {
    const int64_t first = std::max(part.first, before),
                  last = std::min(part.first + part.length, before + piece.length);
    if (first < last) found.push_back({piece.first + first - before, last - first});
    before += piece.length;
  }
  return found;
}

/// What a rank holds of each dimension, in the order in which it stores it.
std::vector<std::vector<Piece>> held_by(const MeshSide& side, const Sizes& sizes, int rank) {
  const std::vector<int> coordinates = coordinates_of(rank, side.axis_sizes);
  std::vector<std::vector<Piece>> held;
  for (const int64_t extent : sizes) held.push_back({{0, extent}});
  Sizes left = sizes;
  for (size_t axis = 0; axis < side.placements.size(); ++axis) {
    const Placement& placement = side.placements[axis];
    if (!placement.is_shard()) continue;
    const auto dim = static_cast<size_t>(placement.dim);
    std::vector<Piece> now;
    int64_t length = 0;
    for (const Piece& part : pieces(placement, left[dim], side.axis_sizes[axis], coordinates[axis])) {
      for (const Piece& piece : pieces_within(held[dim], part)) now.push_back(piece);
      length += part.length;
    }
    held[dim] = std::move(now);
    left[dim] = length;
  }
  return held;
}

/// Elements of a dimension that two ranks both hold, with their positions at each.
struct Overlap {
  int64_t from = 0, to = 0, length = 0;
};
std::vector<Overlap> overlaps(const std::vector<Piece>& from, const std::vector<Piece>& to) {
  std::vector<Overlap> found;
  int64_t before = 0;
  for (const Piece& a : from) {
    int64_t before_b = 0;
    for (const Piece& b : to) {
      const int64_t first = std::max(a.first, b.first), last = std::min(a.first + a.length, b.first + b.length);
      if (first < last) found.push_back({before + first - a.first, before_b + first - b.first, last - first});
      before_b += b.length;
    }
    before += a.length;
  }
  return found;
}

std::vector<ReshardBox> boxes_between(const std::vector<std::vector<Piece>>& from,
                                      const std::vector<std::vector<Piece>>& to) {
  std::vector<ReshardBox> boxes = {{}};
  for (size_t dim = 0; dim < from.size(); ++dim) {
    const std::vector<Overlap> along = overlaps(from[dim], to[dim]);
    std::vector<ReshardBox> longer;
    for (const ReshardBox& box : boxes) {
      for (const Overlap& overlap : along) {
        longer.push_back(box);
        longer.back().from.push_back(overlap.from);
        longer.back().to.push_back(overlap.to);
        longer.back().lengths.push_back(overlap.length);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

/// Whether this rank sends: of ranks that still hold the same elements, only the first does.
bool is_first_holder(const MeshSide& side, int rank) {
  const std::vector<int> coordinates = coordinates_of(rank, side.axis_sizes);
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    if (!side.placements[axis].is_shard() && coordinates[axis] > 0) return false;
  }
  return true;
}

bool cuts(const std::vector<Placement>& placements, size_t first_axis, int dim) {
  return std::any_of(placements.begin() + static_cast<std::ptrdiff_t>(first_axis), placements.end(),
                     [&](const Placement& p) { return p.is_shard(dim); });
}

}  // namespace

int MeshSide::num_ranks() const {
  return std::accumulate(axis_sizes.begin(), axis_sizes.end(), 1, std::multiplies<>());
}

int64_t ReshardBox::count() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{1}, std::multiplies<>());
}

int64_t ReshardMessage::count() const {
  int64_t sum = 0;
  for (const ReshardBox& box : boxes) sum += box.count();
  return sum;
}

std::vector<Placement> spread(const MeshSide& side, const Sizes& sizes, const std::vector<Placement>& like) {
  std::vector<Placement> placements = side.placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_replicate() || side.axis_sizes[axis] == 1) continue;
    const std::vector<int> first(placements.size(), 0);
    const Sizes left = sizes_before_axis(sizes, placements, side.axis_sizes, first, static_cast<int>(axis));
    int best = -1, best_score = -1;
    for (int dim = 0; dim < static_cast<int>(sizes.size()); ++dim) {
      const int64_t extent = left[static_cast<size_t>(dim)];
      if (cuts(placements, axis + 1, dim)) continue;  // a later axis already shards what this one would leave
      const int score = (extent % side.axis_sizes[axis] == 0 ? 4 : 0) + (cuts(like, 0, dim) ? 2 : 0) +
                        (extent >= side.axis_sizes[axis] ? 1 : 0);
      if (score > best_score) {
        best = dim;
        best_score = score;
      }
    }
    if (best >= 0) placements[axis] = Placement::shard(best);
  }
  return placements;
}

Resharding plan_resharding(const MeshSide& from, const MeshSide& to, const Sizes& sizes) {
  for (const MeshSide* side : {&from, &to}) {
    for (const Placement& placement : side->placements) {
      if (placement.is_partial()) throw UsageError("parts of a sum cannot go to another mesh", "finish the sum first");
    }
  }
  if (sizes.empty()) throw UsageError("a tensor without dimensions has no parts", "view it as one with one element");
  Resharding plan;
  plan.received = spread(to, sizes, from.placements);
  for (size_t axis = 0; axis < plan.received.size(); ++axis) {
    // Later axes shard all dimensions: they shard again what this one leaves, and it is reassembled right after the
    // slow link.
    if (plan.received[axis].is_replicate() && to.axis_sizes[axis] > 1) plan.received[axis] = Placement::shard(0);
  }
  plan.sent = spread(from, sizes, plan.received);
  const MeshSide sender{from.axis_sizes, plan.sent}, receiver{to.axis_sizes, plan.received};
  for (int a = 0; a < from.num_ranks(); ++a) {
    if (!is_first_holder(sender, a)) continue;
    const auto held = held_by(sender, sizes, a);
    for (int b = 0; b < to.num_ranks(); ++b) {
      ReshardMessage message{a, b, boxes_between(held, held_by(receiver, sizes, b))};
      if (message.count() > 0) plan.messages.push_back(std::move(message));
    }
  }
  return plan;
}

}  // namespace trireme
