#include "trireme/simulate/player.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/program/pipeline.h"
#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

/// Costs of stages with these times, without collectives.
PlayCosts costs_of(const StageTimes& times) {
  PlayCosts costs;
  for (size_t stage = 0; stage < times.forward.size(); ++stage) {
    StagePart part{times.forward[stage] / 1e3, times.backward[stage] / 1e3, times.weight[stage] / 1e3};
    StageCost cost;
    cost.parts = {part};
    cost.sum = part;
    cost.activation_bytes = 1;
    costs.stages.push_back(cost);
    costs.message.push_back(times.comm[stage] / 1e3);
    costs.gather.push_back({0});
    costs.reduce.push_back({0});
    costs.push.push_back({0});
    for (auto* seconds : {&costs.values, &costs.update, &costs.combine, &costs.pull, &costs.meet})
      seconds->push_back(0);
  }
  return costs;
}

double bubble_of(const std::vector<PlayedRank>& ranks) {
  double cost = 0, ideal = 0;
  for (const PlayedRank& rank : ranks) {
    cost = std::max(cost, rank.last - rank.first);
    ideal = std::max(ideal, rank.busy);
  }
  return (cost - ideal) / cost;
}

TEST(Play, AgreesWithTheTimelineOfPrograms) {
  for (const ScheduleKind kind : schedule_kinds()) {
    SCOPED_TRACE(name_of(kind));
    for (const int ranks : {1, 3, 4}) {
      if (!is_synchronous(kind)) continue;
      const Schedule schedule = make_schedule({.kind = kind, .num_ranks = ranks, .num_micro_batches = 6});
      const StageTimes times = StageTimes::equal(schedule.num_stages(), 3, 4, 2, 0.25);
      const std::vector<Program> programs = lower_pipeline_ranks({.schedule = schedule});
      const Timeline timeline = make_timeline(programs, times);
      const std::vector<PlayedRank> played = play(programs, costs_of(times));
      for (size_t rank = 0; rank < played.size(); ++rank) {
        EXPECT_NEAR(played[rank].busy * 1e3, timeline.ranks[rank].busy_ms, 1e-9);
        ASSERT_EQ(played[rank].spans.size(), timeline.ranks[rank].spans.size());
        for (size_t n = 0; n < played[rank].spans.size(); ++n) {
          EXPECT_NEAR(played[rank].spans[n].start_ms, timeline.ranks[rank].spans[n].start_ms, 1e-9);
        }
      }
      EXPECT_NEAR(bubble_of(played), timeline.bubble_rate, 1e-9);
    }
  }
}

TEST(Play, GivesThePublishedBubbles) {
  struct Model {
    int ranks, micro_batches;
    double forward, backward, weight, comm;
    std::array<double, 3> rates;  ///< 1F1B, H1, H2
  };
  const std::vector<Model> models = {{8, 24, 18.522, 18.086, 9.337, 0.601, {.2431, .1585, .1083}},
                                     {16, 48, 11.347, 11.248, 8.132, 0.377, {.2552, .1397, .0672}}};
  const std::array kinds = {ScheduleKind::k1F1B, ScheduleKind::kZbH1, ScheduleKind::kZbH2};
  for (const Model& m : models) {
    for (size_t n = 0; n < kinds.size(); ++n) {
      const Schedule schedule =
          make_schedule({.kind = kinds[n], .num_ranks = m.ranks, .num_micro_batches = m.micro_batches});
      const auto played = play(lower_pipeline_ranks({.schedule = schedule}),
                               costs_of(StageTimes::equal(m.ranks, m.forward, m.backward, m.weight, m.comm)));
      EXPECT_NEAR(bubble_of(played), m.rates[n], 0.0005) << name_of(kinds[n]);
    }
  }
}

TEST(Play, FoldedIsUnfolded) {
  const Cluster cluster = find_cluster("a100-80gb");
  std::mt19937 random(3);
  for (int n = 0; n < 60; ++n) {
    Job job = random_job(random);
    job.layout.dp = 1 + static_cast<int64_t>(random() % 3);
    job.layout.global_batch = job.layout.dp * job.layout.micro_batch * 4;
    const Simulation folded = simulate(job, cluster), whole = simulate(job, cluster, false);
    SCOPED_TRACE(testing::Message() << "case " << n << ", dp " << job.layout.dp << ", zero " << job.layout.zero);
    EXPECT_EQ(whole.ranks.size(), folded.ranks.size() * static_cast<size_t>(job.layout.num_replicas()));
    EXPECT_NEAR(whole.step_seconds / folded.step_seconds, 1, 1e-12);
    EXPECT_NEAR(whole.memory_bytes(), folded.memory_bytes(), 1);
    EXPECT_NEAR(whole.parts.communication, folded.parts.communication, 1e-12);
  }
}

TEST(Play, FoldedIsUnfoldedWhateverReplicasExchange) {
  const Cluster cluster = find_cluster("a100-80gb");
  std::mt19937 random(4);
  for (const GradientExchange exchange : kExchanges) {
    for (int n = 0; n < 12; ++n) {
      Job job = random_job(random);
      job.layout.zero = 0;
      job.layout.dp = 1 + n % 4;
      job.layout.global_batch = job.layout.dp * job.layout.micro_batch * 4;
      job.layout.exchange = exchange;
      job.layout.servers = UpdateShape{.exchange = exchange}.has_servers() ? 2 : 0;
      const Simulation folded = simulate(job, cluster), whole = simulate(job, cluster, false);
      SCOPED_TRACE(testing::Message() << "exchange " << static_cast<int>(exchange) << ", " << job.layout.to_string());
      EXPECT_NEAR(whole.step_seconds / folded.step_seconds, 1, 1e-12);
      EXPECT_NEAR(whole.parts.communication, folded.parts.communication, 1e-12);
    }
  }
}

// With synchronous servers a replica waits for the pushes of the others, whose sum makes the update. With asynchronous
// servers it waits for the others only at the all-reduce of values.
TEST(Play, SlowPushesHoldUpRoundsAlone) {
  for (const GradientExchange exchange : {GradientExchange::kServers, GradientExchange::kAsyncServers}) {
    StepShape shape;
    shape.pipeline.num_replicas = 2;
    shape.pipeline.num_leaves = shape.num_micro_batches = 4;
    shape.pipeline.groups = {2};  // one gradient group, and the values
    shape.update = {.exchange = exchange, .norm = true};
    std::vector<Program> programs = programs_of(shape);
    PlayCosts costs = costs_of(StageTimes::equal(1, 3, 4, 2, 0));
    costs.push = {{0.05}};
    costs.pull = {0.01};
    const std::vector<PlayedRank> alike = play(programs, costs);
    std::vector<Instruction> twice;  // the last replica pushes twice
    for (const Instruction& i : programs[1].instructions) twice.insert(twice.end(), i.op == OpCode::kPush ? 2 : 1, i);
    programs[1].instructions = twice;
    const std::vector<PlayedRank> played = play(programs, costs);
    EXPECT_NEAR(played[1].end - alike[1].end, 0.05, 1e-9);
    const bool is_in_rounds = exchange == GradientExchange::kServers;
    EXPECT_NEAR(played[0].end - alike[0].end, is_in_rounds ? 0.05 : 0, 1e-9) << is_in_rounds;
  }
}

TEST(Play, HidesSumsBehindTheBackwardPass) {
  Job job = gpt_job(8, 2048, 16, 1024);
  job.layout.dp = 8;
  job.layout.micro_batch = 8;
  job.layout.global_batch = 64;
  const Cluster cluster = find_cluster("a100-80gb");
  for (const int zero : {0, 1, 2, 3}) {
    job.layout.zero = zero;
    job.overlap = true;
    const Simulation hidden = simulate(job, cluster);
    job.overlap = false;
    const Simulation shown = simulate(job, cluster);
    EXPECT_LT(hidden.parts.communication, 0.8 * shown.parts.communication) << zero;
    EXPECT_LT(hidden.step_seconds, shown.step_seconds) << zero;
  }
}

TEST(Play, SlowReplicasHoldTheOthersUp) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 3});
  std::vector<Program> programs = lower_pipeline_all({.schedule = schedule, .num_replicas = 2, .num_leaves = 2});
  PlayCosts costs = costs_of(StageTimes::equal(2, 3, 4, 2, 0.25));
  costs.reduce = {{0.001}, {0.001}};
  const std::vector<PlayedRank> alike = play(programs, costs);
  // The last replica computes every forward pass twice.
  for (size_t rank = 2; rank < 4; ++rank) {
    std::vector<Instruction> twice;
    for (const Instruction& i : programs[rank].instructions) {
      twice.push_back(i);
      if (i.op == OpCode::kForward) twice.push_back({.op = OpCode::kRecompute, .stage = i.stage});
    }
    programs[rank].instructions = twice;
  }
  const std::vector<PlayedRank> played = play(programs, costs);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(played[rank].last, alike[rank].last);
    EXPECT_LT(played[rank].last, played[rank + 2].last);
    ASSERT_FALSE(played[rank].comms.empty());
    ASSERT_EQ(played[rank].comms.size(), played[rank + 2].comms.size());
    EXPECT_EQ(played[rank].comms[0].start, played[rank + 2].comms[0].start);
    EXPECT_GT(played[rank].comms[0].start, alike[rank].comms[0].start);
  }
}

}  // namespace
}  // namespace trireme
