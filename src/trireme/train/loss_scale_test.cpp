#include "trireme/train/loss_scale.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(LossScale, OnlyFloat16HasOne) {
  PrecisionConfig config;
  config.loss_scale_init = 1024;
  EXPECT_EQ(LossScale::of(config).scale, 1);
  config.compute = "bfloat16";
  EXPECT_EQ(LossScale::of(config).scale, 1);
  config.compute = "float16";
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

}  // namespace
}  // namespace trireme
