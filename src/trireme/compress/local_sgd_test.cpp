// Tests of what lets ranks meet less often: local SGD, DiLoCo, Adasum.
#include "trireme/compress/local_sgd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/compress/adasum.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/exchange.h"
#include "trireme/compress/formats/arithmetic.h"

namespace trireme {
namespace {

TEST(MeetingPlan, MeetsWhenItSays) {
  const auto meetings = [](const MeetingPlan& plan) {
    std::string steps;
    for (uint64_t step = 0; step < 10; ++step) steps += plan.meets_after(step) ? 'x' : '.';
    return steps;
  };
  EXPECT_EQ(meetings({1, 0}), "xxxxxxxxxx");
  EXPECT_EQ(meetings({4, 0}), "...x...x..");
  EXPECT_EQ(meetings({4, 3}), "xxx...x...");
  EXPECT_THROW((MeetingPlan{0, 0}.check()), UsageError);
}

TEST(LocalSgd, AveragesAtMeetingsOnly) {
  run_as_threads(3, [](World& world) {
    LocalSgd local(world.comm(), {2, 0});
    std::vector<float> parameters = {static_cast<float>(world.rank()), 5};
    EXPECT_FALSE(local.after_step(0, parameters));
    EXPECT_EQ(parameters[0], static_cast<float>(world.rank()));
    EXPECT_EQ(local.bytes_sent(), 0u);
    EXPECT_TRUE(local.after_step(1, parameters));
    EXPECT_EQ(parameters, (std::vector<float>{1, 5}));
    EXPECT_EQ(local.bytes_sent(), dense_sum_bytes(8, 3));
  });
}

TEST(DiLoCo, FollowsNesterov) {
  run_as_threads(2, [](World& world) {
    const std::vector<float> start = {10};
    DiLoCo outer(world.comm(), {.plan = {1, 0}, .lr = 0.5f, .momentum = 0.8f}, {"w", 1, {}}, start);
    double anchor = 10, momentum = 0;
    for (uint64_t step = 0; step < 5; ++step) {
      std::vector<float> parameters = {static_cast<float>(anchor) - 1 - static_cast<float>(world.rank())};
      EXPECT_TRUE(outer.after_step(step, parameters));
      const double delta = 1.5;
      momentum = 0.8 * momentum + delta;
      anchor -= 0.5 * (delta + 0.8 * momentum);
      EXPECT_NEAR(parameters[0], anchor, 1e-5) << step;
    }
  });
}

TEST(DiLoCo, WithoutMomentumAndARateOf1IsLocalSgd) {
  run_as_threads(3, [](World& world) {
    const std::vector<float> start = test_values(100, 77);
    std::vector<float> a = test_values(100, static_cast<uint64_t>(world.rank())), b = a;
    DiLoCo outer(world.comm(), {.plan = {1, 0}, .lr = 1, .momentum = 0}, {"w", 100, {}}, start);
    LocalSgd local(world.comm(), {1, 0});
    outer.after_step(0, a);
    local.after_step(0, b);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-7);
  });
}

TEST(DiLoCo, PacksWhatItSendsAndKeepsTheRest) {
  for (const BlockFormat format : {BlockFormat::kInt8, BlockFormat::kQsgd8, BlockFormat::kSign}) {
    std::vector<StatePieces> saved(2);
    std::vector<std::vector<float>> after(2);
    const std::vector<float> start(1300, 1.f);
    const DiLoCoOptions options{.plan = {1, 0}, .lr = 1, .momentum = 0, .format = format};
    const GroupLayout layout{"w", 1300, {}};
    run_as_threads(2, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      DiLoCo outer(world.comm(), options, layout, start);
      // Towards 0 in every step: the sum of all that was sent must lead there.
      std::vector<float> parameters = start;
      for (uint64_t step = 0; step < 40; ++step) {
        const std::vector<float> noise = test_values(1300, rank, step);
        for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = parameters[i] * 0.8f + noise[i] * 0.01f;
        outer.after_step(step, parameters);
      }
      for (const float value : parameters) ASSERT_NEAR(value, 0, 0.05) << name_of(format);
      std::vector<float> of_zero = parameters;
      world.comm().broadcast(of_zero, 0);
      EXPECT_EQ(parameters, of_zero);
      saved[rank] = outer.save();
      for (float& value : parameters) value -= 0.1f;
      outer.after_step(40, parameters);
      after[rank] = parameters;
      const double bits = 8.0 * static_cast<double>(outer.bytes_sent()) / (41 * 1300);
      EXPECT_NEAR(bits, bits_per_element(format), 0.2 * bits_per_element(format)) << name_of(format);
    });
    run_as_threads(2, [&](World& world) {
      DiLoCo outer(world.comm(), options, layout, start);
      outer.load(saved);
      std::vector<float> parameters(1300);
      for (const StatePiece& piece : saved[0]) {
        if (piece.name == "diloco/anchor/w") parameters = piece.values;
      }
      for (float& value : parameters) value -= 0.1f;
      outer.after_step(40, parameters);
      EXPECT_EQ(parameters, after[static_cast<size_t>(world.rank())]) << name_of(format);
    });
  }
}

TEST(DiLoCo, RefusesWhatCannotBe) {
  run_as_threads(1, [](World& world) {
    const std::vector<float> start(3);
    const GroupLayout layout{"w", 3, {}};
    EXPECT_THROW(DiLoCo(world.comm(), {.plan = {0, 0}}, layout, start), UsageError);
    EXPECT_THROW(DiLoCo(world.comm(), {.lr = 0}, layout, start), UsageError);
    EXPECT_THROW(DiLoCo(world.comm(), {.momentum = 1}, layout, start), UsageError);
    EXPECT_THROW(DiLoCo(world.comm(), {}, {"w", 4, {}}, start), UsageError);
  });
}

TEST(Adasum, AddsWhatIsOrthogonalAndAveragesWhatIsParallel) {
  const GroupLayout layout = checked({"group", 4, {{"a", 0, 1, 2}, {"b", 2, 1, 2}}});
  std::vector<float> x = {3, 0, 2, 4};
  adasum_pair(layout, x, std::vector<float>{0, 5, 2, 4});
  EXPECT_EQ(x, (std::vector<float>{3, 5, 2, 4}));
  std::vector<float> zero(4);
  adasum_pair(layout, zero, std::vector<float>{1, 2, 0, 4});
  EXPECT_EQ(zero, (std::vector<float>{1, 2, 0, 4}));
}

/// The tree of the header, on one rank.
std::vector<float> adasum_alone(const GroupLayout& layout, std::vector<std::vector<float>> all) {
  const size_t paired = std::bit_floor(all.size());
  for (size_t r = paired; r < all.size(); ++r) adasum_pair(layout, all[r - paired], all[r]);
  for (size_t distance = 1; distance < paired; distance *= 2) {
    for (size_t r = 0; r < paired; r += 2 * distance) adasum_pair(layout, all[r], all[r + distance]);
  }
  return all[0];
}

TEST(Adasum, IsTheSameOnAllRanksAndAsComputedAlone) {
  const GroupLayout layout = checked({"group", 701, {{"a", 0, 20, 30}, {"b", 610, 1, 50}}});
  for (const int ranks : {1, 2, 3, 4, 5, 6, 8}) {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(test_values(701, static_cast<uint64_t>(r)));
    const std::vector<float> expected = adasum_alone(layout, all);
    run_as_threads(ranks, [&](World& world) {
      std::vector<float> values = all[static_cast<size_t>(world.rank())];
      adasum(world.comm(), layout, values);
      EXPECT_EQ(bits_of(values), bits_of(expected)) << ranks << " ranks";
      std::vector<float> wrong(5);
      EXPECT_THROW(adasum(world.comm(), layout, wrong), UsageError);
    });
  }
}

TEST(Adasum, EqualGradientsStayAsTheyAre) {
  run_as_threads(5, [](World& world) {
    std::vector<float> values = test_values(100, 3), same = values;
    adasum(world.comm(), {"group", 100, {}}, values);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], same[i], 1e-7);
  });
}

TEST(Arithmetic, FindsWhatIsNotFinite) {
  std::vector<float> values = test_values(1001, 1);
  EXPECT_TRUE(all_finite(values));
  values[1000] = INFINITY;
  values[3] = NAN;
  EXPECT_FALSE(all_finite(values));
  clear_not_finite(values);
  EXPECT_TRUE(all_finite(values));
  EXPECT_EQ(values[1000], 0.f);
  EXPECT_TRUE(all_finite({}));
  EXPECT_NEAR(
      dot_product(values, values),
      [&] {
        double sum = 0;
        for (const float value : values) sum += static_cast<double>(value) * value;
        return sum;
      }(),
      1e-9);
}

}  // namespace
}  // namespace trireme
