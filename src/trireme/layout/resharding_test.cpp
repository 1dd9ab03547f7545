#include "trireme/layout/resharding.h"

#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/layout/redistribution.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

int64_t count_of(const Sizes& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

std::vector<int> place_of(int rank, const std::vector<int>& axis_sizes) {
  std::vector<int> place(axis_sizes.size());
  for (size_t axis = axis_sizes.size(); axis-- > 0; rank /= axis_sizes[axis]) place[axis] = rank % axis_sizes[axis];
  return place;
}

/// The numbers of the elements of a rank's part, in its own order, found one axis after another by cutting a list.
std::vector<int64_t> elements_of(const Sizes& sizes, const MeshSide& side, int rank) {
  std::vector<int64_t> now(static_cast<size_t>(count_of(sizes)));
  for (size_t i = 0; i < now.size(); ++i) now[i] = static_cast<int64_t>(i);
  Sizes local = sizes;
  const std::vector<int> place = place_of(rank, side.axis_sizes);
  for (size_t axis = 0; axis < side.placements.size(); ++axis) {
    const Placement& p = side.placements[axis];
    if (!p.is_shard()) continue;
    const auto dim = static_cast<size_t>(p.dim);
    const int64_t extent = local[dim], inner = count_of({local.begin() + p.dim + 1, local.end()});
    std::vector<int64_t> kept;
    const auto own = pieces(p, extent, side.axis_sizes[axis], place[axis]);
    for (int64_t outer = 0; outer < count_of({local.begin(), local.begin() + p.dim}); ++outer) {
      for (const Piece& piece : own) {
        for (int64_t i = piece.first; i < piece.first + piece.length; ++i) {
          for (int64_t j = 0; j < inner; ++j)
            kept.push_back(now[static_cast<size_t>((outer * extent + i) * inner + j)]);
        }
      }
    }
    now = kept;
    local[dim] = local_extent(p, extent, side.axis_sizes[axis], place[axis]);
  }
  return now;
}

template <typename Each>
void for_each_in(const ReshardBox& box, const Each& each) {
  Sizes at(box.lengths.size(), 0);
  for (int64_t left = box.count(); left > 0; --left) {
    each(at);
    for (size_t dim = at.size(); dim-- > 0;) {
      if (++at[dim] < box.lengths[dim]) break;
      at[dim] = 0;
    }
  }
}

int64_t flat(const Sizes& first, const Sizes& at, const Sizes& sizes) {
  int64_t index = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) index = index * sizes[dim] + first[dim] + at[dim];
  return index;
}

/// Empty: every element arrives once, at its place, from a rank that has it; and the rest needs no other mesh.
std::string wrong_with(const MeshSide& from, const MeshSide& to, const Sizes& sizes) {
  const Resharding plan = plan_resharding(from, to, sizes);
  for (const RedistributionStep& step : plan_redistribution(from.placements, plan.sent, from.axis_sizes, sizes)) {
    if (step.movement != Movement::kSlice) return "something moves before it is sent";
  }
  plan_redistribution(plan.received, to.placements, to.axis_sizes, sizes);
  const MeshSide sender{from.axis_sizes, plan.sent}, receiver{to.axis_sizes, plan.received};
  std::map<std::pair<int, int64_t>, int64_t> got;  // receiver, place: element
  std::vector<int> crossings(static_cast<size_t>(count_of(sizes)), 0);
  for (const ReshardMessage& m : plan.messages) {
    const auto a = elements_of(sizes, sender, m.from);
    const Sizes size_a = local_sizes(sizes, plan.sent, from.axis_sizes, place_of(m.from, from.axis_sizes));
    const Sizes size_b = local_sizes(sizes, plan.received, to.axis_sizes, place_of(m.to, to.axis_sizes));
    for (const ReshardBox& box : m.boxes) {
      for_each_in(box, [&](const Sizes& at) {
        const int64_t element = a[static_cast<size_t>(flat(box.from, at, size_a))];
        got[{m.to, flat(box.to, at, size_b)}] = element;
        ++crossings[static_cast<size_t>(element)];
      });
    }
  }
  for (const int crossed : crossings) {
    if (crossed != 1) return "an element crosses " + std::to_string(crossed) + " times";
  }
  for (int b = 0; b < to.num_ranks(); ++b) {
    const auto wanted = elements_of(sizes, receiver, b);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto found = got.find({b, static_cast<int64_t>(i)});
      if (found == got.end() || found->second != wanted[i]) return "an element is not where it should be";
    }
  }
  return "";
}

const Placement kR = Placement::replicate();
Placement s(int dim, int64_t stretches = 1, int64_t unit = 1) { return Placement::shard(dim, stretches, unit); }

TEST(Resharding, EveryElementCrossesOnce) {
  const std::vector<MeshSide> sides = {{{1}, {kR}},
                                       {{2}, {kR}},
                                       {{2}, {s(0)}},
                                       {{2}, {s(1)}},
                                       {{3}, {kR}},
                                       {{3}, {s(0)}},
                                       {{3}, {s(1, 2)}},
                                       {{4}, {s(1, 1, 3)}},
                                       {{2, 2}, {kR, kR}},
                                       {{2, 2}, {s(0), kR}},
                                       {{2, 2}, {kR, s(0)}},
                                       {{2, 2}, {s(0), s(1)}},
                                       {{2, 3}, {s(1), s(1)}},
                                       {{1, 2}, {kR, s(0)}},
                                       {{2, 1}, {s(0), kR}}};
  for (const Sizes& sizes : {Sizes{6, 12}, Sizes{4, 12, 5}, Sizes{1, 12}, Sizes{7, 12, 2}}) {
    for (size_t i = 0; i < sides.size(); ++i) {
      for (size_t j = 0; j < sides.size(); ++j) {
        EXPECT_EQ(wrong_with(sides[i], sides[j], sizes), "") << i << " to " << j << ", " << sizes.size() << " dims";
      }
    }
  }
  // No dimension is left to cut.
  EXPECT_EQ(wrong_with({{2, 2}, {kR, s(0)}}, {{2, 2}, {kR, s(0)}}, {8}), "");
  EXPECT_EQ(wrong_with({{2}, {kR}}, {{3}, {kR}}, {1}), "");
}

TEST(Resharding, HoldersOfTheSameSendEqualShares) {
  const Resharding plan = plan_resharding({{2}, {kR}}, {{2}, {kR}}, {8, 4});
  ASSERT_EQ(plan.messages.size(), 2);
  for (int rank = 0; rank < 2; ++rank) {
    const ReshardMessage& message = plan.messages[static_cast<size_t>(rank)];
    EXPECT_EQ(message.from, rank);
    EXPECT_EQ(message.to, rank);
    EXPECT_EQ(message.count(), 16);
  }
  // What the destination cuts is cut alike by who sends it: one message each.
  EXPECT_EQ(plan_resharding({{4}, {kR}}, {{4}, {s(1)}}, {8, 4}).messages.size(), 4);
}

TEST(Resharding, RefusesWhatHasNoParts) {
  EXPECT_THROW(plan_resharding({{2}, {Placement::partial()}}, {{2}, {kR}}, {8}), UsageError);
  EXPECT_THROW(plan_resharding({{2}, {kR}}, {{2}, {kR}}, {}), UsageError);
}

}  // namespace
}  // namespace trireme
