// Exchanges other than sums of gradients: bytes on the link, how often, and when in the step.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

/// One replica per host, so that only bytes on the network count.
Cluster far_apart() {
  Cluster cluster = find_cluster("v100-16gb");
  cluster.devices_per_host = 1;
  return cluster;
}

Job job_of(GradientExchange exchange, int64_t replicas) {
  Job job = gpt_job(12, 1024, 16, 512);
  job.model.tied = false;
  job.layout.float32_gradients = true;
  job.layout.dp = replicas;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 48;
  job.layout.exchange = exchange;
  job.layout.servers = UpdateShape{.exchange = exchange}.has_servers() ? replicas : 0;
  return job;
}

/// Seconds on the first rank's communication stream.
double seconds_of(const Simulation& s, OpCode op) {
  double seconds = 0;
  for (const CommSpan& span : s.ranks[0].played.comms) {
    if (span.instruction.op == op) seconds += span.end - span.start;
  }
  return seconds;
}

double seconds_of_bytes(double bytes) { return bytes / far_apart().between.effective(); }

constexpr double kFewBytes = 1e-3;  ///< upper bound on seconds of latency alone

TEST(Exchange, AdasumSendsWholeGradientsToPartners) {
  for (const auto& [replicas, messages] :
       {std::pair{2, 1}, {4, 2}, {8, 3}, {6, 4}}) {  // of 6, two send to partners among 4
    const Simulation s = simulate(job_of(GradientExchange::kAdasum, replicas), far_apart());
    const double expected = messages * seconds_of_bytes(4 * s.parameters);
    EXPECT_NEAR(seconds_of(s, OpCode::kCombine) / expected, 1, 0.08) << replicas;
    EXPECT_LT(seconds_of(s, OpCode::kAllReduce), kFewBytes) << "loss and stop flag alone";
    const Simulation sums = simulate(job_of(GradientExchange::kSum, replicas), far_apart());
    EXPECT_NEAR(seconds_of(sums, OpCode::kAllReduce) / expected, 2 * (1 - 1.0 / replicas) / messages, 0.08) << replicas;
  }
}

TEST(Exchange, OneBitAdamSendsSigns) {
  Job job = job_of(GradientExchange::kMomenta, 8);
  job.layout.exchange_bytes = 1.0 / 8;
  const Simulation s = simulate(job, far_apart());
  const double signs = 2 * 7.0 / 8 * seconds_of_bytes(s.parameters / 8);
  EXPECT_NEAR(seconds_of(s, OpCode::kCombine) / signs, 1, 0.05);
  EXPECT_LT(seconds_of(s, OpCode::kAllReduce), kFewBytes);
}

TEST(Exchange, LocalStepsSendNothingBetweenMeetings) {
  Job job = job_of(GradientExchange::kLocal, 8);
  const Cluster cluster = far_apart();
  const Simulation each = simulate(job, cluster);
  EXPECT_NEAR(seconds_of(each, OpCode::kMeet) / (2 * 7.0 / 8 * seconds_of_bytes(4 * each.parameters)), 1, 0.05);
  EXPECT_LT(seconds_of(each, OpCode::kAllReduce), kFewBytes) << "gradients stay where they are";
  job.layout.meet_every = 10;
  const Simulation tenth = simulate(job, cluster);
  EXPECT_NEAR(seconds_of(tenth, OpCode::kMeet) * 10 / seconds_of(each, OpCode::kMeet), 1, 1e-9);
  EXPECT_LT(tenth.step_seconds, each.step_seconds);
  job.layout.meet_every = 1'000'000'000;
  EXPECT_LT(simulate(job, cluster).parts.communication, kFewBytes);
  job.layout.meet_every = 10;
  job.layout.exchange_bytes = 1;
  EXPECT_NEAR(seconds_of(simulate(job, cluster), OpCode::kMeet) / seconds_of(tenth, OpCode::kMeet), 0.25, 0.01);
}

TEST(Exchange, MeetingsOfGpusAreInTheMemoryOfTheHost) {
  Job job = job_of(GradientExchange::kLocal, 8);
  const Simulation published = simulate(job, far_apart());
  job.software = Software::kTrireme;
  const Simulation s = simulate(job, far_apart());
  const double copied = 2 * 4 * s.parameters / s.cluster.device.offload_bandwidth;
  EXPECT_NEAR(seconds_of(s, OpCode::kMeet) - seconds_of(published, OpCode::kMeet), copied, 1e-9);
}

TEST(Exchange, ServersGetGradientsAndSendFloat32Weights) {
  const Job job = job_of(GradientExchange::kServers, 8);  // and 8 servers, each with an eighth of the parameters
  const Simulation s = simulate(job, far_apart());
  EXPECT_NEAR(seconds_of(s, OpCode::kPush) / seconds_of_bytes(4 * s.parameters), 1, 0.02);
  EXPECT_NEAR(seconds_of(s, OpCode::kPull) / seconds_of_bytes(4 * s.parameters), 1, 0.02);
  Job half = job;
  half.layout.float32_gradients = false;
  const Simulation h = simulate(half, far_apart());
  EXPECT_NEAR(seconds_of(h, OpCode::kPush) / seconds_of_bytes(2 * s.parameters), 1, 0.02);
  EXPECT_NEAR(seconds_of(h, OpCode::kPull) / seconds_of(s, OpCode::kPull), 1, 1e-9);
  // The servers keep a slot for each use of a tied weight, so both gradients are sent.
  Job tied = job;
  tied.model.tied = true;
  const Simulation t = simulate(tied, far_apart());
  const double embedding = static_cast<double>(tied.model.vocab * tied.model.hidden);
  EXPECT_NEAR(seconds_of(t, OpCode::kPush) / seconds_of_bytes(4 * (t.parameters + embedding)), 1, 0.02);
  EXPECT_NEAR(seconds_of(t, OpCode::kPull) / seconds_of_bytes(4 * t.parameters), 1, 0.02);
}

// Servers add partial sums along the tree of leaves, so a replica pushes partial sums that it cannot add separately.
TEST(Exchange, ReplicasPushTheirPartialSums) {
  Job job = job_of(GradientExchange::kServers, 2);
  job.layout.leaves = 8;
  const double one = seconds_of(simulate(job, far_apart()), OpCode::kPush);
  job.layout.leaves = 6;  // three per replica: a sum of two, and one
  EXPECT_NEAR(seconds_of(simulate(job, far_apart()), OpCode::kPush) / one, 2, 1e-9);
  job.layout.compression = Method::kInt8;  // which takes one sum
  EXPECT_NEAR(seconds_of(simulate(job, far_apart()), OpCode::kPush) / one, 1, 1e-9);
}

TEST(Exchange, AsynchronousServersGetClippedGradientsAndUpdateForEachReplica) {
  const Job job = job_of(GradientExchange::kServers, 8);
  Job alone = job;
  alone.layout.exchange = GradientExchange::kAsyncServers;
  const auto first_push = [](const PlayedRank& rank) {
    const auto push = std::ranges::find(rank.comms, OpCode::kPush, [](const CommSpan& c) { return c.instruction.op; });
    return push->start;
  };
  Cluster cluster = far_apart();
  cluster.stack.overlaps_gradients = true;
  const PlayedRank rounds = simulate(job, cluster).ranks[0].played, each = simulate(alone, cluster).ranks[0].played;
  EXPECT_LT(first_push(rounds), rounds.last) << "beside the backward pass";
  EXPECT_GT(first_push(each), each.last) << "behind the norm, which clips";
  const double fixed = cluster.device.step_seconds;
  EXPECT_GT(each.update - fixed, 5 * (rounds.update - fixed));
}

}  // namespace
}  // namespace trireme
