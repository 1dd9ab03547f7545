// Jobs on a mix of several kinds of hosts.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/simulate/simulate.h"
#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(Simulate, TheSlowestKindOfAMixSetsThePace) {
  Job job = gpt_job();
  job.layout.dp = 16;
  job.layout.global_batch = 64;
  const std::vector<Cluster> kinds = find_clusters("a100-80gb+v100-16gb");
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].between, kinds[1].between);
  const Simulation mix = simulate_mix(job, kinds);
  EXPECT_EQ(mix.step_seconds, std::max(simulate(job, kinds[0]).step_seconds, simulate(job, kinds[1]).step_seconds));
  EXPECT_EQ(mix.cluster.device.memory_bytes, find_cluster("v100-16gb").device.memory_bytes);
  EXPECT_EQ(mix.cluster.name, "a100-80gb+v100-16gb");
  EXPECT_EQ(mix.cluster.device.name, "A100+V100");
  EXPECT_THROW(find_clusters(""), UsageError);
  EXPECT_THROW(find_clusters("a100-80gb+nothing"), UsageError);
}

TEST(Simulate, KindsOfAMixReachEachOtherByTheNetwork) {
  Job job = gpt_job();
  job.layout.dp = 2;
  const std::vector<Cluster> kinds = find_clusters("a100-80gb+v100-16gb");
  std::vector<Cluster> slower = kinds;
  for (Cluster& kind : slower) kind.between.bandwidth /= 100;
  EXPECT_GT(simulate_mix(job, slower).step_seconds, 2 * simulate_mix(job, kinds).step_seconds);
  EXPECT_EQ(in_mix(kinds[0], 2, 2).devices_per_host, 1);
  EXPECT_EQ(in_mix(kinds[0], 64, 2), in_mix(kinds[0], 32, 2));
  job.layout.dp = 1;
  EXPECT_THROW(simulate_mix(job, kinds), UsageError) << "half a replica on each";
}

TEST(Simulate, FasterKindsMayHaveALargerBatchPart) {
  Job job = gpt_job();
  job.layout.tp = job.layout.pp = 1;
  job.layout.dp = 4;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 32;
  const std::vector<Cluster> kinds = find_clusters("h100-80gb+v100-16gb");
  Job equal = job, unequal = job;
  equal.layout.batch_parts = {8, 8, 8, 8};
  EXPECT_EQ(simulate_mix(equal, kinds).step_seconds, simulate_mix(job, kinds).step_seconds);
  unequal.layout.batch_parts = {10, 10, 6, 6};
  const Simulation mix = simulate_mix(unequal, kinds);
  Job most = job, least = job;
  most.layout.global_batch = 40;
  least.layout.global_batch = 24;
  EXPECT_EQ(mix.step_seconds, std::max(simulate(most, in_mix(kinds[0], 4, 2)).step_seconds,
                                       simulate(least, in_mix(kinds[1], 4, 2)).step_seconds));
  EXPECT_LT(mix.step_seconds, simulate_mix(job, kinds).step_seconds);
  EXPECT_EQ(mix.tokens_per_step, simulate_mix(job, kinds).tokens_per_step) << "all of the batch, whoever has it";
  EXPECT_EQ(simulate(unequal, kinds[0]).step_seconds, simulate(most, kinds[0]).step_seconds) << "waits for the most";
  unequal.layout.batch_parts = {12, 12, 4};
  EXPECT_THROW(simulate_mix(unequal, kinds), UsageError);
  unequal.layout.batch_parts = {12, 12, 4, 3};
  EXPECT_THROW(simulate_mix(unequal, kinds), UsageError);
}

}  // namespace
}  // namespace trireme
