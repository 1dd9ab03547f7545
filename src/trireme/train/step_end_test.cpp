#include "trireme/train/step_end.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Check = StepRules::Check;

StepSums sums_of(double loss, double norm, double factor = 0.25) {
  return {.loss = loss, .factor = factor, .own_norm = norm, .norm = norm};
}

StepRules rules_for_float16() { return {.num_micro_batches = 4, .scales_loss = true, .growth_every = 3}; }

TEST(LossScale, OnlyFloat16HasOne) {
  PrecisionConfig config;
  config.loss_scale_init = 1024;
  EXPECT_EQ(LossScale::of(config).scale, 1);
  config.compute = NumberType::kBfloat16;
  EXPECT_EQ(LossScale::of(config).scale, 1);
  config.compute = NumberType::kFloat16;
  EXPECT_EQ(LossScale::of(config).scale, 1024);
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterEnoughGoodSteps) {
  LossScale scale{1024, 0, 0};
  scale.update(false, 3);
  EXPECT_EQ(scale, (LossScale{512, 0, 1}));
  scale.update(true, 3);
  scale.update(true, 3);
  EXPECT_EQ(scale, (LossScale{512, 2, 1}));
  scale.update(false, 3);  // counting starts again
  EXPECT_EQ(scale, (LossScale{256, 0, 2}));
  for (int i = 0; i < 3; ++i) scale.update(true, 3);
  EXPECT_EQ(scale, (LossScale{512, 0, 2}));
}

TEST(LossScale, StaysInItsLimits) {
  LossScale scale{2, 0, 0};
  for (int i = 0; i < 5; ++i) scale.update(false, 1);
  EXPECT_EQ(scale.scale, 1);
  EXPECT_EQ(scale.num_skipped, 5);
  for (int i = 0; i < 100; ++i) scale.update(true, 1);
  EXPECT_EQ(scale.scale, 16777216);
}

TEST(StepEnd, ReportsMeans) {
  const StepEnd end = decide(sums_of(6, 2.5), {}, {.num_micro_batches = 4});
  EXPECT_EQ(end.verdict, Verdict::kUpdate);
  EXPECT_EQ(end.loss, 1.5);
  EXPECT_EQ(end.gradient_norm, 2.5);
  EXPECT_EQ(end.factor, 0.25);
  EXPECT_TRUE(end.updates());
  EXPECT_FALSE(end.is_bad());
  EXPECT_FALSE(end.stop);
}

TEST(StepEnd, StopsWhereSomebodyWishesIt) {
  StepSums sums = sums_of(1, 1);
  sums.stop = true;
  const StepEnd end = decide(sums, {}, {});
  EXPECT_TRUE(end.stop);
  EXPECT_EQ(end.verdict, Verdict::kUpdate);  // the step counts
}

TEST(StepEnd, ClipsNormsOverTheBoundOnly) {
  const auto factor = [](double clip, double norm) { return decide(sums_of(1, norm), {}, {.clip = clip}).factor; };
  EXPECT_EQ(factor(0, 100), 0.25);  // off
  EXPECT_EQ(factor(2, 1.5), 0.25);
  EXPECT_EQ(factor(2, 2), 0.25);  // exactly at the bound
  EXPECT_EQ(factor(2, 8), 0.0625);
}

TEST(StepEnd, ClipsByTheOwnNormAndReportsTheReplicas) {
  StepSums sums = sums_of(1, 8);
  sums.norm = 5;
  const StepEnd end = decide(sums, {}, {.clip = 2});
  EXPECT_EQ(end.factor, 0.0625);
  EXPECT_EQ(end.gradient_norm, 5);
  sums.norm = kNan;  // another replica's is not finite: none updates
  EXPECT_EQ(decide(sums, {}, {}).verdict, Verdict::kBad);
}

TEST(StepEnd, OverflowSkipsAndHalvesTheScale) {
  for (const double norm : {kInf, kNan}) {
    const StepEnd end = decide(sums_of(1, norm), {1024, 2, 5}, rules_for_float16());
    EXPECT_EQ(end.verdict, Verdict::kOverflow);
    EXPECT_FALSE(end.updates());
    EXPECT_FALSE(end.is_bad());
    EXPECT_EQ(end.loss_scale, (LossScale{512, 0, 6}));
  }
}

TEST(StepEnd, TheScaleGrowsAfterEnoughGoodSteps) {
  LossScale scale{512, 0, 0};
  for (int64_t good = 1; good < 3; ++good) {
    scale = decide(sums_of(1, 1), scale, rules_for_float16()).loss_scale;
    EXPECT_EQ(scale, (LossScale{512, good, 0}));
  }
  EXPECT_EQ(decide(sums_of(1, 1), scale, rules_for_float16()).loss_scale, (LossScale{1024, 0, 0}));
}

TEST(StepEnd, NoScaleMovesInOtherTypes) {
  const StepRules rules = {.growth_every = 1};
  EXPECT_EQ(decide(sums_of(1, 1), {}, rules).loss_scale, LossScale());
  EXPECT_EQ(decide(sums_of(1, kInf), {}, rules).loss_scale, LossScale());
}

TEST(StepEnd, IsBadWhereNoSmallerScaleHelps) {
  const LossScale scale{1024, 2, 0}, smallest{1, 2, 0};
  const auto expect_bad = [](const StepEnd& end, const LossScale& before) {
    EXPECT_EQ(end.verdict, Verdict::kBad);
    EXPECT_FALSE(end.updates());
    EXPECT_EQ(end.loss_scale, before) << "a bad step says nothing about the scale";
  };
  expect_bad(decide(sums_of(kNan, 1), scale, rules_for_float16()), scale);
  expect_bad(decide(sums_of(kInf, kNan), scale, rules_for_float16()), scale);
  expect_bad(decide(sums_of(1, kInf), smallest, rules_for_float16()), smallest);
  expect_bad(decide(sums_of(1, kInf), {}, {}), {});
  EXPECT_FALSE(decide(sums_of(kNan, 1), {}, {}).loss_is_finite);
  EXPECT_TRUE(decide(sums_of(1, kNan), {}, {}).loss_is_finite);
}

TEST(StepEnd, ADeviceDecidesByTheNorm) {
  EXPECT_EQ(decide(sums_of(kInf, 1), {}, {.check = Check::kNorm}).verdict, Verdict::kUpdate);
  EXPECT_EQ(decide(sums_of(kInf, kInf), {}, {.check = Check::kNorm}).verdict, Verdict::kBad);
}

TEST(StepEnd, WhatWasUpdatedBeforeIsSpoiled) {
  for (const StepSums& sums : {sums_of(kNan, 1), sums_of(1, kInf)}) {
    const StepEnd end = decide(sums, {}, {.check = Check::kNone});
    EXPECT_EQ(end.verdict, Verdict::kSpoiled);
    EXPECT_TRUE(end.updates());
    EXPECT_TRUE(end.is_bad());
  }
  EXPECT_EQ(decide(sums_of(1, 1), {}, {.check = Check::kNone}).verdict, Verdict::kUpdate);
}

}  // namespace
}  // namespace trireme
