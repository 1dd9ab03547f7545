// Suggestions for jobs that do not fit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/units.h"
#include "trireme/simulate/simulate.h"
#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(Simulate, SaysWhatWouldFit) {
  Job job = gpt_job(48, 6144, 48, 2048);
  job.layout.dp = 32;
  job.layout.global_batch = 64;
  const Simulation s = simulate(job, find_cluster("a100-80gb"));
  EXPECT_FALSE(s.fits());
  const std::vector<std::string> ways = ways_to_fit(s);
  ASSERT_FALSE(ways.empty());
  EXPECT_NE(ways[0].find("parallel."), std::string::npos) << ways[0];
  EXPECT_TRUE(ways_to_fit(simulate(gpt_job(), find_cluster("a100-80gb"))).empty());
}

TEST(Simulate, AdviceForAMixIsPlayedOnTheMix) {
  Job job = gpt_job(32, 4096, 32, 1024);
  job.layout.tp = 2;
  job.layout.pp = 4;
  job.layout.dp = 6;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 96;
  const std::vector<Cluster> kinds = find_clusters("a100-80gb+v100-16gb");
  const Simulation s = simulate_mix(job, kinds);
  ASSERT_FALSE(s.fits());
  job.layout.recompute = RecomputeKind::kFull;
  const Simulation followed = simulate_mix(job, kinds);
  ASSERT_TRUE(followed.fits());
  const std::vector<std::string> ways = ways_to_fit(s);
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(ways[0], fmt::format("train.recompute = full: {}, {} a step", format_gigabytes(followed.memory_bytes()),
                                 format_duration(followed.step_seconds)));
}

TEST(Simulate, SaysHowManyDevicesWouldDo) {
  Job job = gpt_job(126, 16384, 128, 8192);
  job.layout.tp = 8;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 64;
  const Cluster cluster = find_cluster("h100-80gb");
  const Simulation s = simulate(job, cluster);
  const std::vector<std::string> ways = ways_to_fit(s);
  const auto number_of = [&](const char* words) {
    return std::count_if(ways.begin(), ways.end(),
                         [&](const std::string& way) { return way.find(words) != std::string::npos; });
  };
  EXPECT_EQ(number_of(" devices with parallel.pp = "), 1);
  EXPECT_EQ(number_of("parallel.zero = 3, train.recompute = full"), 1);
  EXPECT_EQ(ways.back(), "this layout on devices with " + format_gigabytes(s.memory_bytes()));
  // The batch is the user's: with one sample there cannot be more replicas.
  job.layout.global_batch = 1;
  for (const std::string& way : ways_to_fit(simulate(job, cluster))) EXPECT_EQ(way.find("dp"), std::string::npos);
}

}  // namespace
}  // namespace trireme
