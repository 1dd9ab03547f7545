#include "trireme/program/stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/program/timeline.h"

namespace trireme {
namespace {

const std::vector<ScheduleKind> kStreams = {ScheduleKind::kPipeDream, ScheduleKind::kPipeDreamSync,
                                            ScheduleKind::kPipeDream2Bw};

/// What streams_of() makes of the same, written without it: the programs for a number of micro-batches.
std::vector<Program> finite(PipelineShape shape, ScheduleShape schedule, int micro_batches, int replica) {
  schedule.num_micro_batches = micro_batches;
  shape.schedule = make_schedule(schedule);
  return lower_pipeline_ranks(shape, replica);
}

TEST(Stream, IsTheFiniteProgramWhateverItsLength) {
  for (const ScheduleKind kind : kStreams) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (const int replicas : {1, 2}) {
        for (const int every : {1, 2, 6}) {
          if (kind == ScheduleKind::kPipeDream2Bw && every < ranks) continue;
          const PipelineShape shape{.num_replicas = replicas, .groups = {2}, .recompute = {ranks > 2}};
          const ScheduleShape schedule{.kind = kind, .num_ranks = ranks, .update_every = every};
          for (int replica = 0; replica < replicas; ++replica) {
            const std::vector<Stream> streams = streams_of(shape, schedule, replica);
            ASSERT_EQ(streams.size(), size_t(ranks));
            for (const int rounds : {0, 1, 2, 7}) {
              const int count = streams[0].num_micro_batches(rounds) / replicas;
              const std::vector<Program> expected = finite(shape, schedule, count, replica);
              for (size_t rank = 0; rank < streams.size(); ++rank) {
                EXPECT_EQ(streams[rank].unrolled(rounds), expected[rank])
                    << name_of(kind) << " rank " << rank << " of " << ranks << ", " << rounds << " rounds";
              }
            }
            EXPECT_EQ(streams[0].micro_batches_per_round, every * replicas);
            EXPECT_EQ(streams[0].updates_per_round, 1);
          }
        }
      }
    }
  }
}

TEST(Stream, APassAndItsSumsAreInOneRound) {
  for (const ScheduleKind kind : kStreams) {
    for (const Stream& stream : streams_of({.num_replicas = 2, .groups = {3}}, {.kind = kind, .num_ranks = 3})) {
      EXPECT_FALSE(follows_pass(stream.program.instructions[stream.round_begin].op));
    }
  }
}

TEST(Stream, IsAsShortAsItsPipelineAllows) {
  // The first of 4 ranks is 3 forward passes ahead of its first backward pass; the last is none.
  const std::vector<Stream> streams = streams_of({}, {.kind = ScheduleKind::kPipeDream, .num_ranks = 4});
  const auto count = [](const Stream& stream, OpCode op) {
    const auto begin = stream.program.instructions.begin();
    return std::count_if(begin + std::ptrdiff_t(stream.round_begin), begin + std::ptrdiff_t(stream.round_end),
                         [op](const Instruction& i) { return i.op == op; });
  };
  for (const Stream& stream : streams) {
    EXPECT_EQ(count(stream, OpCode::kForward), 1);
    EXPECT_EQ(count(stream, OpCode::kBackward), 1);
    EXPECT_EQ(count(stream, OpCode::kOptimizerStep), 1);
    EXPECT_LE(stream.program.num_micro_batches, 8) << "4 that fill the pipeline, a round, and receives posted early";
  }
}

std::vector<Program> unrolled(const std::vector<Stream>& streams, int rounds) {
  std::vector<Program> programs;
  for (const Stream& stream : streams) programs.push_back(stream.unrolled(rounds));
  return programs;
}

TEST(Stream, IsProvedByTheCheckerAndLosesNoTimeToFlushes) {
  const ScheduleShape schedule{.kind = ScheduleKind::kPipeDream, .num_ranks = 4};
  const std::vector<Stream> streams = streams_of({}, schedule);
  const int rounds = 40;
  const std::vector<Program> programs = unrolled(streams, rounds);
  EXPECT_NO_THROW(check_programs(programs, 1));
  std::vector<Program> broken = programs;
  broken[2].instructions.erase(broken[2].instructions.begin() + std::ptrdiff_t(streams[2].round_begin));
  EXPECT_THROW(check_programs(broken, 1), Error);

  const StageTimes times = StageTimes::equal(4, 1, 1, 1, 0);
  const double stream_ms = make_timeline(programs, times).makespan_ms / programs[0].num_micro_batches;
  const double step_ms = make_timeline(finite({}, schedule, 4, 0), times).makespan_ms / 4;
  EXPECT_NEAR(stream_ms, 3, 0.5) << "a forward and a backward pass each, but for one fill and drain";
  EXPECT_GT(step_ms / stream_ms, 1.2) << "steps of 4 micro-batches that drain";
}

TEST(Stream, RefusesSchedulesThatEmptyThePipeline) {
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind)) continue;
    EXPECT_THROW(streams_of({}, {.kind = kind, .num_ranks = 2}), UsageError) << name_of(kind);
  }
}

}  // namespace
}  // namespace trireme
