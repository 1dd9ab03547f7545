#include "trireme/simulate/memory_over_time.h"

#include <gtest/gtest.h>

#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(MemoryOverTime, IsAtMostWhatIsReported) {
  std::mt19937 random(17);
  for (int n = 0; n < 60; ++n) {
    const Job job = random_job(random);
    const Simulation s = simulate(job, find_cluster("a100-80gb"));
    for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
      SCOPED_TRACE(testing::Message() << "case " << n << ", rank " << rank);
      const std::vector<MemoryPoint> points = memory_over_time(s, rank);
      const RankMemory& reported = s.ranks[rank].memory;
      double most = 0, before = -1;
      for (const MemoryPoint& point : points) {
        EXPECT_GT(point.seconds, before);
        before = point.seconds;
        most = std::max(most, point.memory.sum());
        EXPECT_EQ(point.memory.states(), reported.states());
        EXPECT_EQ(point.memory.buffers, reported.buffers);
        EXPECT_GE(point.memory.activations, -1e-6 * reported.activations);
      }
      EXPECT_NEAR(most / reported.sum(), 1, 1e-12);
      EXPECT_EQ(points.front().seconds, 0);
      EXPECT_EQ(points.back().seconds, s.ranks[rank].played.end);
      EXPECT_NEAR(points.back().memory.activations, 0, 1e-6 * reported.activations);
    }
  }
}

TEST(MemoryOverTime, RecomputedActivationsAreThereInTheBackwardPass) {
  Job job = gpt_job();
  job.layout.pp = 2;
  const Cluster cluster = find_cluster("a100-80gb");
  EXPECT_EQ(simulate(job, cluster).ranks[0].played.peak_at.op, OpCode::kForward);
  job.layout.recompute = RecomputeKind::kFull;
  const Simulation s = simulate(job, cluster);
  EXPECT_EQ(s.ranks[0].played.peak_at.op, OpCode::kBackward);
  const Span& first = s.ranks[0].played.spans.front();
  ASSERT_EQ(first.instruction.op, OpCode::kForward);
  for (const MemoryPoint& point : memory_over_time(s, 0)) {
    if (point.seconds * 1e3 < first.end_ms) {
      EXPECT_LE(point.memory.activations, s.stages[0].activation_bytes) << "nothing is computed again so far";
    }
  }
}

}  // namespace
}  // namespace trireme
