// What is said before a benchmark starts: more work, more time; nothing where nobody knows.
#include "trireme/measure/estimate.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme::measure {
namespace {

CommOptions comm(std::vector<int> ranks, std::vector<uint64_t> sizes) {
  CommOptions options;
  options.ranks = std::move(ranks);
  options.sizes = std::move(sizes);
  options.operations = {Operation::kAllReduce};
  options.algorithms = {Algorithm::kAuto};
  options.buffers = {true};
  return options;
}

TEST(Estimate, TheTableOfCollectives) {
  const CommOptions small = comm({2}, {4096}), large = comm({2}, {64 << 20});
  const double seconds = estimate_comm_seconds(large, 2);
  EXPECT_GT(seconds, estimate_comm_seconds(small, 2));
  EXPECT_GT(estimate_comm_seconds(comm({2, 4}, {64 << 20}), 2), 2.5 * seconds) << "four ranks share two cores";
  CommOptions fixed = large;
  fixed.seconds_per_point = 100;
  EXPECT_NEAR(estimate_comm_seconds(fixed, 2), 200, 5) << "ours and the floor";
  fixed.compare_mpi = true;
  EXPECT_NEAR(estimate_comm_seconds(fixed, 2), 300, 10);
}

TEST(Estimate, Trainings) {
  TrainOptions options;
  TrainPlan plan;
  TrainCase one;
  one.config = resolve({.file = "", .arguments = {}, .default_preset = "gpt2-bench"});
  one.samples_per_step = 16;
  plan.cases = {one};
  options.repeats = 1;
  const double single = estimate_train_seconds(plan, options, 0, 2);
  EXPECT_GT(single, 1);
  options.repeats = 3;
  EXPECT_NEAR(estimate_train_seconds(plan, options, 0, 2), 3 * single, 1e-6);
  EXPECT_GT(estimate_train_seconds(plan, options, 1, 2), 6 * single) << "PyTorch takes longer to start";
  plan.cases[0].config.train.device = DeviceKind::kCuda;
  EXPECT_EQ(estimate_train_seconds(plan, options, 0, 2), 0);
  plan.cases[0].config = resolve({.file = "", .arguments = {}, .default_preset = "resnet18"});
  EXPECT_EQ(estimate_train_seconds(plan, options, 0, 2), 0);
}

TEST(Estimate, IsAsRoughAsItSounds) {
  EXPECT_EQ(rough_duration(0.2), "about 1 s");
  EXPECT_EQ(rough_duration(23.4), "about 20 s");
  EXPECT_EQ(rough_duration(169), "about 3 min");
  EXPECT_EQ(rough_duration(6000), "about 1.7 h");
}

}  // namespace
}  // namespace trireme::measure
