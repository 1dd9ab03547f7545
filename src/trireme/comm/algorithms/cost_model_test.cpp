#include "trireme/comm/algorithms/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr double kN = kBytes;
const TransportCost kCost{"tcp", 0, {20, 4e-4}, 1.5e-4, 30, 1e-4};
constexpr double kAlpha = 20, kBeta = 4e-4, kGamma = 1.5e-4;

double cost(Algorithm algorithm, int p, size_t num_bytes = kBytes) {
  return predict_us(algorithm, p, num_bytes, kCost);
}

TEST(CostModel, OneRankCostsNothing) {
  for (const Algorithm algorithm : all_algorithms()) EXPECT_EQ(cost(algorithm, 1), 0) << name_of(algorithm);
}

TEST(CostModel, IsTheLiterature) {
  for (const int p : {2, 4, 8, 64}) {
    const double ranks = p, fraction = (ranks - 1) / ranks, lg = std::log2(ranks);
    EXPECT_DOUBLE_EQ(cost(Algorithm::kSequential, p),
                     2 * (ranks - 1) * (kAlpha + kN * kBeta) + (ranks - 1) * kN * kGamma);
    EXPECT_DOUBLE_EQ(cost(Algorithm::kServer, p), 2 * (kAlpha + (ranks - 1) * kN * kBeta) + (ranks - 1) * kN * kGamma);
    EXPECT_DOUBLE_EQ(cost(Algorithm::kRing, p),
                     2 * (ranks - 1) * kAlpha + 2 * fraction * kN * kBeta + fraction * kN * kGamma);
    EXPECT_DOUBLE_EQ(cost(Algorithm::kParallel, p), kAlpha + (ranks - 1) * kN * (kBeta + kGamma));
    for (const Algorithm algorithm : {Algorithm::kRecursiveHalving, Algorithm::kFarthestFirst}) {
      EXPECT_DOUBLE_EQ(cost(algorithm, p), 2 * lg * kAlpha + 2 * fraction * kN * kBeta + fraction * kN * kGamma);
    }
    EXPECT_DOUBLE_EQ(cost(Algorithm::kTree, p), 2 * lg * kAlpha + 2 * kN * kBeta + kN * kGamma);
    EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, p), lg * (kAlpha + kN * (kBeta + kGamma)));
    EXPECT_DOUBLE_EQ(cost(Algorithm::kOrdered, p), 2 * kAlpha + 2 * fraction * kN * kBeta + fraction * kN * kGamma);
  }
}

TEST(CostModel, FoldingCostsTwoMoreRounds) {
  const double fraction = 6.0 / 7;
  EXPECT_DOUBLE_EQ(cost(Algorithm::kRecursiveHalving, 7),
                   6 * kAlpha + (2 * fraction + 2) * kN * kBeta + (1 + fraction) * kN * kGamma);
}

TEST(CostModel, ButterflyOfOtherThanPowersOfTwoPaysForItsFans) {
  // With 2^k + 1 ranks the last one sends the whole to all others in the last round: algorithms/butterfly.cpp.
  const double step = kAlpha + kN * (kBeta + kGamma);
  EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, 3), 2 * step + kN * kBeta);
  EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, 5), 3 * step + 3 * kN * kBeta);
  EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, 6), 3 * step + kN * kBeta);
  EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, 7), 3 * step + 2 * kN * kBeta);  // inside the right part as well
  EXPECT_DOUBLE_EQ(cost(Algorithm::kButterfly, 33), 6 * step + 31 * kN * kBeta);
}

TEST(CostModel, NothingBeatsTheLowerBound) {
  for (const Algorithm algorithm : all_algorithms()) {
    if (algorithm == Algorithm::kTwoLevel || algorithm == Algorithm::kInPlace) continue;
    for (int p = 2; p <= 64; ++p) {
      const double rounds = algorithm == Algorithm::kParallel ? 1
                            : algorithm == Algorithm::kServer || algorithm == Algorithm::kOrdered
                                ? 2
                                : std::ceil(std::log2(p));  // for one message a rank and round
      EXPECT_GE(cost(algorithm, p, 0), rounds * kAlpha) << name_of(algorithm) << " of " << p;
      EXPECT_GE(cost(algorithm, p) * (1 + 1e-9), std::min(2.0 * (p - 1) / p, double(p - 1)) * kN * kBeta)
          << name_of(algorithm) << " of " << p;
    }
  }
}

TEST(CostModel, TwoLevelsCostTheHostAndTheNetwork) {
  const TransportCost local{"shared memory", 0, {0.6, 1e-4}, 1.5e-4, 1, 1e-4};
  const double both = predict_us(Algorithm::kTwoLevel, 8, kBytes, kCost, &local, 4);
  EXPECT_DOUBLE_EQ(
      both, predict_us(Algorithm::kInPlace, 4, kBytes, local) + predict_us(Algorithm::kOrdered, 2, kBytes / 4, kCost));
  EXPECT_LT(both, predict_us(Algorithm::kOrdered, 8, kBytes, kCost));
}

TEST(CostModel, GrowsAsItSays) {
  // Time for a byte, where latency rules, and for a gigabyte, where bandwidth does.
  const auto latency = [](Algorithm algorithm) { return cost(algorithm, 64, 1) / cost(algorithm, 8, 1); };
  const auto bandwidth = [](Algorithm algorithm) { return cost(algorithm, 64, 1 << 30) / cost(algorithm, 8, 1 << 30); };
  EXPECT_NEAR(latency(Algorithm::kSequential), 9, 0.1);  // 63 / 7
  EXPECT_NEAR(latency(Algorithm::kRing), 9, 0.1);
  EXPECT_NEAR(bandwidth(Algorithm::kRing), 1, 0.2);
  EXPECT_NEAR(latency(Algorithm::kParallel), 1, 0.1);
  EXPECT_NEAR(bandwidth(Algorithm::kParallel), 9, 0.1);
  EXPECT_NEAR(latency(Algorithm::kRecursiveHalving), 2, 0.1);  // 6 / 3
  EXPECT_NEAR(bandwidth(Algorithm::kRecursiveHalving), 1, 0.2);
}

TEST(CostModel, EveryAlgorithmHasAFormulaAndAGrowth) {
  for (const Algorithm algorithm : all_algorithms()) {
    EXPECT_FALSE(formula_of(algorithm).empty()) << name_of(algorithm);
    EXPECT_FALSE(complexity_of(algorithm).empty()) << name_of(algorithm);
  }
}

}  // namespace
}  // namespace trireme
