#include "trireme/program/interpreter.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline.h"

namespace trireme {
namespace {

/// How many instructions of each rank run, and the error where they do not come to their ends.
struct Ran {
  std::vector<size_t> counts;
  std::string error;
};

Ran run(const std::vector<Program>& programs, const WaitRules& rules = {}) {
  Interpreter interpreter(programs, rules);
  Ran ran{std::vector<size_t>(programs.size()), ""};
  interpreter.advance(instructions_of(programs), [&](size_t rank, const Instruction& i, const Dataflow&) {
    EXPECT_EQ(&i, &programs[rank].instructions[ran.counts[rank]]) << "in order, each once";
    ++ran.counts[rank];
    return true;
  });
  try {
    interpreter.require_ends();
  } catch (const Error& error) {
    ran.error = error.what();
  }
  return ran;
}

std::vector<Program> pipeline(int replicas = 1) {
  const Schedule schedule = make_schedule({.num_ranks = 3, .num_micro_batches = 4});
  return lower_pipeline_all({.schedule = schedule, .num_replicas = replicas, .num_leaves = 4 * replicas});
}

void erase_first(Program& program, OpCode op) {
  std::erase_if(program.instructions,
                [op, done = false](const Instruction& i) mutable { return !done && i.op == op && (done = true); });
}

TEST(Interpreter, RunsAllRanksToTheirEnds) {
  for (const bool at_each : {false, true}) {
    for (const std::vector<Program>& programs :
         {pipeline(), pipeline(2), lower_data_parallel_all({8, 8, 4, 3}),
          lower_pipeline_all({.schedule = make_schedule({.num_ranks = 2, .num_micro_batches = 2}),
          .num_replicas = 2,
          .num_leaves = 4,
          .replicas = {2, 1}})}) {
      const Ran ran = run(programs, {.sends_under_way = 1, .at_each_collective = at_each});
      EXPECT_EQ(ran.error, "");
      for (size_t rank = 0; rank < programs.size(); ++rank) {
        EXPECT_EQ(ran.counts[rank], programs[rank].instructions.size());
      }
    }
  }
}

TEST(Interpreter, SaysWhatEachRankWaitsFor) {
  std::vector<Program> programs = pipeline();
  erase_first(programs[1], OpCode::kSendActivation);
  EXPECT_NE(run(programs).error.find("rank 2 waits at instruction"), std::string::npos) << run(programs).error;
  EXPECT_NE(run(programs).error.find("for the input of stage 2, micro-batch 0, which rank 1 has not sent"),
            std::string::npos);

  programs = pipeline();
  for (int i = 0; i < 4; ++i) erase_first(programs[1], OpCode::kRecvActivation);
  EXPECT_EQ(run(programs).error, "") << "a message is there once it has been sent";
  EXPECT_NE(run(programs, {.sends_under_way = 1}).error.find("for rank 1 to receive what was sent before it"),
            std::string::npos);
}

TEST(Interpreter, WaitsForReplicasWhereItShould) {
  std::vector<Program> programs = lower_data_parallel_all({2, 2, 2, 1});
  erase_first(programs[1], OpCode::kAllReduce);
  for (const bool at_each : {false, true}) {
    const Ran ran = run(programs, {.at_each_collective = at_each});
    EXPECT_NE(ran.error.find("for the sums of the other replicas"), std::string::npos) << ran.error;
    const Instruction& stands_at = programs[0].instructions[ran.counts[0]];
    EXPECT_EQ(stands_at.op, at_each ? OpCode::kAllReduce : OpCode::kOptimizerStep);
  }
}

TEST(Interpreter, RunsOrdersThatHaveNoMessages) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_micro_batches = 3});
  Interpreter interpreter(2, schedule.rank_of_stage, 3);
  size_t count = 0;
  interpreter.advance([&](size_t rank) -> const std::vector<Instruction>& { return schedule.ranks[rank]; },
                      [&](size_t, const Instruction& i, const Dataflow& flow) {
                        EXPECT_EQ(static_cast<bool>(flow.input), flow.input.to == i.stage);
                        EXPECT_EQ(flow.input.travels, flow.input && schedule.rank_of_stage[size_t(flow.input.from)] !=
                                                                        schedule.rank_of_stage[size_t(i.stage)]);
                        return ++count > 0;
                      });
  EXPECT_NO_THROW(interpreter.require_ends());
  EXPECT_EQ(count, schedule.ranks[0].size() + schedule.ranks[1].size());
}

}  // namespace
}  // namespace trireme
