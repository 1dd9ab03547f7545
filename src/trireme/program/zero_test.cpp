#include "trireme/program/zero.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline.h"

namespace trireme {
namespace {

std::vector<Instruction> without(const Program& program, std::initializer_list<OpCode> ops) {
  std::vector<Instruction> rest;
  for (const Instruction& i : program.instructions) {
    if (std::find(ops.begin(), ops.end(), i.op) == ops.end()) rest.push_back(i);
  }
  return rest;
}

int64_t count(const Program& program, OpCode op, int group = -1) {
  return std::count_if(program.instructions.begin(), program.instructions.end(),
                       [&](const Instruction& i) { return i.op == op && (group < 0 || i.group == group); });
}

/// Groups that are gathered right before an instruction, in order.
std::vector<int> gathered_before(const Program& program, size_t at) {
  std::vector<int> groups;
  while (at > 0 && program.instructions[at - 1].op == OpCode::kAllGather) {
    groups.insert(groups.begin(), program.instructions[--at].group);
  }
  return groups;
}

/// Three groups, two of them shared: four micro-batches of a rank.
Program plain() { return lower_data_parallel({8, 8, 2, 3}, 1); }

TEST(ShareOverReplicas, StageZeroIsTheProgramItself) { EXPECT_EQ(share_over_replicas(plain(), {}), plain()); }

TEST(ShareOverReplicas, ScattersWhatIsSharedAndGathersItOnce) {
  for (const int zero : {1, 2}) {
    const Program program = share_over_replicas(plain(), {.zero = zero, .shared_groups = {2}});
    EXPECT_EQ(count(program, OpCode::kAllReduce), 1);
    EXPECT_EQ(count(program, OpCode::kAllReduce, 2), 1) << "the last group is not shared";
    EXPECT_EQ(count(program, OpCode::kReduceScatter), 2);
    EXPECT_EQ(count(program, OpCode::kAllGather), 2);
    EXPECT_EQ(gathered_before(program, 2), (std::vector<int>{1, 0})) << "the first layers are in the last group";
    EXPECT_EQ(program.instructions[2].op, OpCode::kForward);
    EXPECT_EQ(without(program, {OpCode::kAllReduce, OpCode::kReduceScatter, OpCode::kAllGather}),
              without(plain(), {OpCode::kAllReduce}));
  }
}

TEST(ShareOverReplicas, StageThreeGathersBeforeEveryPass) {
  for (const bool keep : {false, true}) {
    const Program program = share_over_replicas(plain(), {.zero = 3, .shared_groups = {2}, .keep = keep});
    for (size_t at = 0; at < program.instructions.size(); ++at) {
      const OpCode op = program.instructions[at].op;
      if (op == OpCode::kForward) {
        EXPECT_EQ(gathered_before(program, at), (std::vector<int>{1, 0}));
      }
      if (op == OpCode::kBackward) {
        EXPECT_EQ(gathered_before(program, at), keep ? std::vector<int>() : (std::vector<int>{0, 1}));
      }
    }
    EXPECT_EQ(count(program, OpCode::kAllGather), (keep ? 1 : 2) * 2 * count(program, OpCode::kForward));
  }
}

TEST(ShareOverReplicas, EachMicroBatchIsScatteredAndAdded) {
  const Program program =
      share_over_replicas(plain(), {.zero = 2, .shared_groups = {2}, .keep = false, .each_micro_batch = true});
  EXPECT_EQ(count(program, OpCode::kReduceScatter, 0), count(program, OpCode::kBackward));
  EXPECT_EQ(count(program, OpCode::kAddSlot, 0), 0) << "whole gradients are not summed";
  EXPECT_EQ(count(program, OpCode::kAddSlot, 2), count(plain(), OpCode::kAddSlot, 2));
  EXPECT_EQ(std::count_if(program.instructions.begin(), program.instructions.end(),
                          [](const Instruction& i) { return i.op == OpCode::kReduceScatter && !i.add; }),
            2)
      << "the first of a step sets";
}

TEST(ShareOverReplicas, OfAPipelineEachStageHasItsOwnGroups) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 4});
  const PipelineShape shape{.schedule = schedule, .num_replicas = 2, .num_leaves = 8, .groups = {3, 2}};
  for (const int rank : {0, 1}) {
    const Program program = share_over_replicas(lower_pipeline(shape, rank, 0), {.zero = 3, .shared_groups = {2, 1}});
    EXPECT_EQ(count(program, OpCode::kReduceScatter), rank == 0 ? 2 : 1);
    EXPECT_EQ(count(program, OpCode::kAllReduce), 1);
    EXPECT_EQ(count(program, OpCode::kAllGather), (rank == 0 ? 2 : 1) * 2 * 4);
  }
}

}  // namespace
}  // namespace trireme
