// Lowered pipelines: the same bits for every synchronous schedule, and the papers' rules for the asynchronous ones.
#include "trireme/program/pipeline.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/symbolic_test_util.h"

namespace trireme {
namespace {

/// Each stage's last weights, which all its replicas must agree on.
std::map<int, Symbol> last_weights(const std::vector<Program>& programs) {
  const auto ranks = SymbolicRun(programs).run();
  std::map<int, Symbol> all;
  if (!ranks) return all;
  for (const auto& rank : *ranks) {
    for (const auto& [stage, weights] : rank) {
      EXPECT_EQ(all.emplace(stage, weights).first->second, weights) << "replicas differ in stage " << stage;
    }
  }
  return all;
}

/// All stages on one rank, each micro-batch through all of them: no pipeline at all.
Schedule one_rank(int num_stages, int num_micro_batches) {
  Schedule schedule{.num_ranks = 1, .num_micro_batches = num_micro_batches};
  schedule.rank_of_stage.assign(static_cast<size_t>(num_stages), 0);
  std::vector<Instruction>& list = schedule.ranks.emplace_back();
  for (int m = 0; m < num_micro_batches; ++m) {
    for (int s = 0; s < num_stages; ++s) list.push_back({.op = OpCode::kForward, .stage = s, .micro_batch = m});
    for (int s = num_stages; s-- > 0;) list.push_back({.op = OpCode::kBackward, .stage = s, .micro_batch = m});
  }
  return schedule;
}

TEST(Pipeline, EverySynchronousScheduleGivesTheSameBits) {
  for (const int total : {4, 12, 24}) {  // micro-batches of all replicas
    for (const int leaves : {2, total / 2, total}) {
      const auto reference = last_weights(
          lower_pipeline_all({.schedule = one_rank(4, total), .num_leaves = leaves, .groups = {2, 1, 1, 3}}));
      ASSERT_EQ(reference.size(), 4u);
      for (const ScheduleKind kind : schedule_kinds()) {
        if (!is_synchronous(kind)) continue;
        for (const int replicas : {1, 2, 3}) {
          if (leaves % replicas != 0 || total % replicas != 0) continue;
          for (const bool recompute : {false, true}) {
            const std::vector<Program> programs = lower_pipeline_all(
                {.schedule = make_schedule(
                     {.kind = kind, .num_ranks = 4 / stages_per_rank(kind), .num_micro_batches = total / replicas}),
                 .num_replicas = replicas,
                 .num_leaves = leaves,
                 .groups = {2, 1, 1, 3},
                 .recompute = {recompute}});
            ASSERT_NO_THROW(check_programs(programs, leaves));
            EXPECT_EQ(last_weights(programs), reference)
                << name_of(kind) << ", " << total << " micro-batches, " << leaves << " leaves, " << replicas
                << " replicas, recompute " << recompute;
          }
        }
      }
    }
  }
}

TEST(Pipeline, StagesMayDifferInTheirReplicas) {
  using Replicas = std::vector<int>;
  for (const int total : {6, 12, 24}) {
    for (const int leaves : {6, 12, total}) {
      if (total % leaves != 0) continue;
      const auto reference =
          last_weights(lower_pipeline_all({.schedule = one_rank(3, total), .num_leaves = leaves, .groups = {2, 1, 3}}));
      for (const ScheduleKind kind : schedule_kinds()) {
        if (!is_synchronous(kind) || stages_per_rank(kind) > 1) continue;
        for (const Replicas& replicas : {Replicas{1, 2, 1}, {2, 1, 2}, {1, 1, 3}, {3, 2, 1}, {6, 1, 2}, {1, 2, 6}}) {
          int lanes = 1;
          for (const int each : replicas) lanes = std::lcm(lanes, each);
          for (const bool recompute : {false, true}) {
            const std::vector<Program> programs = lower_pipeline_all(
                {.schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = total / lanes}),
                 .num_replicas = lanes,
                 .num_leaves = leaves,
                 .groups = {2, 1, 3},
                 .recompute = {recompute},
                 .replicas = replicas});
            ASSERT_NO_THROW(check_programs(programs, leaves)) << name_of(kind) << ", " << total << ", " << lanes;
            EXPECT_EQ(last_weights(programs), reference)
                << name_of(kind) << ", " << total << " micro-batches, " << leaves << " leaves, " << lanes << " lanes";
          }
        }
      }
    }
  }
}

TEST(Pipeline, StagesThatDifferUpdateWhileMicroBatchesAreUnderWay) {
  // PipeDream's replicated stages: the same weights as with as many replicas as lanes in every stage.
  for (const ScheduleKind kind : {ScheduleKind::kPipeDream, ScheduleKind::kPipeDream2Bw}) {
    const Schedule schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = 12});
    const auto lowered = [&](std::vector<int> replicas) {
      return lower_pipeline_all({.schedule = schedule, .num_replicas = 2, .groups = {2}, .replicas = replicas});
    };
    const auto reference = last_weights(lowered({}));
    const std::vector<Program> programs = lowered({2, 1, 2});
    ASSERT_NO_THROW(check_programs(programs, schedule.micro_batches_in_update() * 2));
    EXPECT_EQ(last_weights(programs), reference) << name_of(kind);
  }
}

TEST(Pipeline, RefusesReplicasThatDoNotShareTheLanes) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 4});
  EXPECT_THROW(lower_pipeline_all({.schedule = schedule, .num_replicas = 2, .replicas = {2, 3}}), UsageError);
  EXPECT_THROW(lower_pipeline_all({.schedule = schedule, .num_replicas = 2, .replicas = {2}}), UsageError);
  EXPECT_THROW(lower_pipeline({.schedule = schedule, .num_replicas = 2, .replicas = {2, 1}}, 1, 1), UsageError);
}

TEST(Pipeline, OfOneStageIsDataParallelism) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::kNaive, .num_ranks = 1, .num_micro_batches = 6});
  for (int replica = 0; replica < 2; ++replica) {
    Program pipeline =
        lower_pipeline({.schedule = schedule, .num_replicas = 2, .num_leaves = 12, .groups = {3}}, 0, replica);
    const Program plain = lower_data_parallel({12, 12, 2, 3}, replica);
    for (Instruction& instruction : pipeline.instructions) instruction.stage = -1;
    EXPECT_EQ(pipeline.instructions, plain.instructions);
    EXPECT_EQ(pipeline.across, plain.across);
    EXPECT_EQ(pipeline.num_slots, plain.num_slots);
  }
}

/// The rule itself, one micro-batch after another: `version` gives the weights that micro-batch m sees in a stage.
std::map<int, Symbol> by_the_rule(int num_stages, int count, int every, const std::function<int(int, int)>& version) {
  std::vector<std::vector<Symbol>> weights, sums(static_cast<size_t>(num_stages));
  for (int s = 0; s < num_stages; ++s) weights.push_back({first_weights(s)});
  for (int m = 0; m < count; ++m) {
    std::vector<Symbol> outputs;
    const auto seen = [&](int s) { return weights[size_t(s)].at(size_t(version(s, m))); };
    for (int s = 0; s < num_stages; ++s) {
      outputs.push_back(forward_symbol(s, m, seen(s), s == 0 ? 0 : outputs.back()));
    }
    Symbol gradient = loss_gradient(outputs.back());
    for (int s = num_stages; s-- > 0;) {
      sums[size_t(s)].push_back(weight_gradient(outputs[size_t(s)], gradient, 0));
      gradient = input_gradient(outputs[size_t(s)], seen(s), gradient);
      if (int(sums[size_t(s)].size()) < every) continue;
      Symbol sum = sums[size_t(s)][0];  // one leaf: one after another
      for (int i = 1; i < every; ++i) sum = sum_symbol(sum, sums[size_t(s)][size_t(i)]);
      weights[size_t(s)].push_back(symbol({7, weights[size_t(s)].back(), sum}));
      sums[size_t(s)].clear();
    }
  }
  std::map<int, Symbol> last;
  for (int s = 0; s < num_stages; ++s) last[s] = weights[size_t(s)].back();
  return last;
}

TEST(Pipeline, PipeDreamFollowsItsRule) {
  for (const int stages : {1, 2, 3, 5}) {
    for (const int count : {2, 5, 12}) {
      const auto programs = [&](ScheduleKind kind) {
        return lower_pipeline_all(
            {.schedule = make_schedule({.kind = kind, .num_ranks = stages, .num_micro_batches = count}),
             .num_leaves = 1});
      };
      EXPECT_EQ(last_weights(programs(ScheduleKind::kPipeDream)),
                by_the_rule(stages, count, 1, [&](int s, int m) { return std::max(0, m - (stages - 1 - s)); }));
      EXPECT_EQ(last_weights(programs(ScheduleKind::kPipeDreamSync)),
                by_the_rule(stages, count, 1, [&](int, int m) { return std::max(0, m - (stages - 1)); }));
    }
  }
}

TEST(Pipeline, DoubleBufferingFollowsItsRule) {
  for (const int stages : {1, 2, 3, 5}) {
    for (const int every : {1, 2, 3, 6}) {
      const int count = every * 4;
      const std::vector<Program> programs =
          lower_pipeline_all({.schedule = make_schedule({.kind = ScheduleKind::kPipeDream2Bw,
                                                         .num_ranks = stages,
                                                         .num_micro_batches = count,
                                                         .update_every = every}),
                              .num_leaves = 1});
      EXPECT_NO_THROW(check_programs(programs, 1));
      EXPECT_EQ(last_weights(programs),
                by_the_rule(stages, count, every, [&](int, int m) { return std::max(0, m / every - 1); }))
          << stages << " stages, " << every;
    }
  }
}

TEST(Pipeline, ComposesWithReplicasAsynchronously) {
  for (const ScheduleKind kind :
       {ScheduleKind::kPipeDream, ScheduleKind::kPipeDreamSync, ScheduleKind::kPipeDream2Bw}) {
    const Schedule schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = 12});
    const int leaves = 2 * schedule.micro_batches_in_update();
    const std::vector<Program> programs =
        lower_pipeline_all({.schedule = schedule, .num_replicas = 2, .num_leaves = leaves, .recompute = {true}});
    EXPECT_NO_THROW(check_programs(programs, leaves)) << name_of(kind);
    EXPECT_EQ(last_weights(programs).size(), 3u);
  }
}

TEST(Pipeline, RecomputationLeavesOneMicroBatchOfActivations) {
  const std::vector<Program> programs = lower_pipeline_ranks(
      {.schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_ranks = 3, .num_micro_batches = 8}),
       .recompute = {true}});
  for (const Program& program : programs) {
    EXPECT_EQ(peak_memory(program).activations, 1);
    EXPECT_LE(peak_memory(program).inputs, 8);
    EXPECT_GE(peak_memory(program).inputs, 7);
  }
}

TEST(Pipeline, ReadsLikeAList) {
  const std::vector<Program> programs = lower_pipeline_ranks(
      {.schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 2})});
  EXPECT_EQ(programs[0].to_string(),
            "RecvGradient stage 0 micro-batch 0 peer +1\nRecvGradient stage 0 micro-batch 1 peer +1\n"
            "Forward stage 0 micro-batch 0\nSendActivation stage 0 micro-batch 0 peer +1\n"
            "Forward stage 0 micro-batch 1\nSendActivation stage 0 micro-batch 1 peer +1\n"
            "Backward stage 0 micro-batch 0 -> slot 0\nBackward stage 0 micro-batch 1 -> slot 1\n"
            "AddSlot stage 0 group 0 slot 0 += slot 1\nOptimizerStep\n");
}

TEST(Pipeline, RefusesWhatDoesNotFit) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 4});
  EXPECT_THROW(lower_pipeline({.schedule = schedule}, 2), UsageError);
  EXPECT_THROW(lower_pipeline({.schedule = schedule, .num_replicas = 2}, 0, 2), UsageError);
  EXPECT_THROW(lower_pipeline({.schedule = schedule, .num_leaves = 3}, 0), UsageError);
  EXPECT_THROW(lower_pipeline({.schedule = schedule, .groups = {1, 2, 3}}, 0), UsageError);
  EXPECT_THROW(lower_pipeline({.schedule = schedule, .groups = {0}}, 0), UsageError);
  Schedule stranger = schedule;
  stranger.ranks[0][0].stage = 1;
  EXPECT_THROW(lower_pipeline({.schedule = stranger}, 0), UsageError);
  stranger.ranks[0][0].stage = 2;
  EXPECT_THROW(lower_pipeline({.schedule = stranger}, 0), UsageError);
  stranger = schedule;
  stranger.rank_of_stage[1] = 2;
  EXPECT_THROW(lower_pipeline({.schedule = stranger}, 0), UsageError);
  stranger = schedule;
  stranger.ranks[0][0].op = OpCode::kOptimizerStep;
  EXPECT_THROW(lower_pipeline({.schedule = stranger}, 0), UsageError);
  Schedule missing = schedule;
  missing.ranks[1].pop_back();
  EXPECT_THROW(check_programs(lower_pipeline_ranks({.schedule = missing}), 4), Error);
}

}  // namespace
}  // namespace trireme
