#include "trireme/layout/redistribution.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

const Placement kWhole = Placement::replicate();
const Placement kSummand = Placement::partial();

std::vector<Movement> movements(const std::vector<Placement>& from, const std::vector<Placement>& to,
                                const std::vector<int>& axis_sizes, const std::vector<int64_t>& sizes) {
  std::vector<Movement> all;
  for (const RedistributionStep& step : plan_redistribution(from, to, axis_sizes, sizes)) all.push_back(step.movement);
  return all;
}

TEST(Redistribution, OneAxisIsOneStep) {
  const auto step = [](const Placement& from, const Placement& to) { return movements({from}, {to}, {4}, {8, 8}); };
  EXPECT_EQ(step(kWhole, Placement::shard(0)), std::vector{Movement::kSlice});
  EXPECT_EQ(step(kWhole, kSummand), std::vector{Movement::kSpread});
  EXPECT_EQ(step(Placement::shard(0), kWhole), std::vector{Movement::kAllGather});
  EXPECT_EQ(step(Placement::shard(0), Placement::shard(1)), std::vector{Movement::kAllToAll});
  EXPECT_EQ(step(kSummand, kWhole), std::vector{Movement::kAllReduce});
  EXPECT_EQ(step(kSummand, Placement::shard(1)), std::vector{Movement::kReduceScatter});
  EXPECT_TRUE(step(kSummand, kSummand).empty());
  EXPECT_EQ(step(Placement::shard(0), kSummand), (std::vector{Movement::kAllGather, Movement::kSpread}));
}

TEST(Redistribution, LaterAxesGiveWayFirst) {
  // Both cut dimension 0; the second cuts what the first leaves, so it must let go before the first may.
  const auto steps =
      plan_redistribution({Placement::shard(0), Placement::shard(0)}, {kWhole, Placement::shard(0)}, {2, 2}, {8, 8});
  ASSERT_GE(steps.size(), 2u);
  EXPECT_EQ(steps[0].axis, 1);
}

TEST(Redistribution, SmallTensorsTravel) {
  // Slicing along one axis first makes the all-reduce along the other cheaper.
  const auto steps = plan_redistribution({kWhole, kSummand}, {Placement::shard(0), kWhole}, {2, 2}, {8, 8});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].movement, Movement::kSlice);
  EXPECT_EQ(steps[1].movement, Movement::kAllReduce);
}

TEST(Redistribution, EveryPairHasAPathThatEndsThere) {
  const std::vector<Placement> all = {kWhole, kSummand, Placement::shard(0), Placement::shard(1),
                                      Placement::shard(1, 2)};
  for (const Placement& a : all) {
    for (const Placement& b : all) {
      for (const Placement& c : all) {
        for (const Placement& d : all) {
          std::vector<Placement> state = {a, b};
          for (const RedistributionStep& step : plan_redistribution(state, {c, d}, {2, 3}, {7, 12})) {
            Placement& here = state[static_cast<size_t>(step.axis)];
            EXPECT_EQ(here, step.from);
            EXPECT_EQ(step.movement, movement_between(step.from, step.to));
            here = step.to;
          }
          EXPECT_EQ(state, (std::vector<Placement>{c, d}));
        }
      }
    }
  }
}

TEST(Redistribution, RefusesWhatCannotBe) {
  EXPECT_THROW(plan_redistribution({kWhole}, {Placement::shard(2)}, {2}, {4, 4}), UsageError);
  EXPECT_THROW(plan_redistribution({kWhole, kWhole}, {kWhole}, {2}, {4}), UsageError);
  EXPECT_THROW(movement_between(Placement::shard(0), kSummand), UsageError);
}

TEST(Redistribution, LocalSizesAreCutAxisByAxis) {
  const std::vector<Placement> placements = {Placement::shard(0), Placement::shard(0)};
  EXPECT_EQ(local_sizes({7, 3}, placements, {2, 2}, {0, 0}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(local_sizes({7, 3}, placements, {2, 2}, {1, 1}), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(sizes_before_axis({7, 3}, placements, {2, 2}, {1, 1}, 1), (std::vector<int64_t>{3, 3}));
}

}  // namespace
}  // namespace trireme
