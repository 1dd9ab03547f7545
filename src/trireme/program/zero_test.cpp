#include "trireme/program/zero.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/symbolic_test_util.h"

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

/// Three groups, two of them sharded: four micro-batches of a rank.
Program plain() { return lower_data_parallel({8, 8, 2, 3}, 1); }

TEST(ShardOverReplicas, StageZeroIsTheProgramItself) { EXPECT_EQ(shard_over_replicas(plain(), {}), plain()); }

TEST(ShardOverReplicas, ScattersShardedGroupsAndGathersThemOnce) {
  for (const int zero : {1, 2}) {
    const Program program = shard_over_replicas(plain(), {.zero = zero, .sharded_groups = {2}});
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

TEST(ShardOverReplicas, StageThreeGathersBeforeEveryPass) {
  for (const bool keep : {false, true}) {
    const Program program = shard_over_replicas(plain(), {.zero = 3, .sharded_groups = {2}, .keep = keep});
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

TEST(ShardOverReplicas, EachMicroBatchIsScatteredAndAdded) {
  const Program program =
      shard_over_replicas(plain(), {.zero = 2, .sharded_groups = {2}, .keep = false, .each_micro_batch = true});
  EXPECT_EQ(count(program, OpCode::kReduceScatter, 0), count(program, OpCode::kBackward));
  EXPECT_EQ(count(program, OpCode::kAddSlot, 0), 0) << "whole gradients are not summed";
  EXPECT_EQ(count(program, OpCode::kAddSlot, 2), count(plain(), OpCode::kAddSlot, 2));
  EXPECT_EQ(std::count_if(program.instructions.begin(), program.instructions.end(),
                          [](const Instruction& i) { return i.op == OpCode::kReduceScatter && !i.add; }),
            2)
      << "the first of a step sets";
}

/// The programs of all ranks before ZeRO.
struct Whole {
  std::string name;
  std::vector<Program> programs;
  int num_leaves = 1;
  std::vector<int> sharded_groups = {};
};

std::vector<Whole> wholes() {
  std::vector<Whole> all;
  const auto add = [&](const DataParallelShape& shape) {
    all.push_back({fmt::format("{} leaves on {} ranks", shape.num_leaves, shape.num_ranks),
                   lower_data_parallel_all(shape),
                   shape.num_leaves,
                   {shape.num_groups - 1}});
  };
  add({2, 2, 2, 3});    // one micro-batch each
  add({8, 8, 2, 3});    // several, summed on the tree
  add({16, 4, 4, 2});   // several in a leaf
  add({24, 24, 2, 3});  // several partial sums of each rank
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind)) continue;
    for (const bool recompute : {false, true}) {
      PipelineShape shape{.schedule = make_schedule({.kind = kind, .num_ranks = 2, .num_micro_batches = 4}),
                          .num_replicas = 2,
                          .num_leaves = 8,
                          .recompute = {recompute}};
      std::vector<int> sharded;
      for (int stage = 0; stage < shape.schedule.num_stages(); ++stage) {
        shape.groups.push_back(3 - stage % 2);
        sharded.push_back(shape.groups.back() - 1);
      }
      all.push_back({fmt::format("{}{}", name_of(kind), recompute ? ", recomputed" : ""), lower_pipeline_all(shape),
                     shape.leaves(), sharded});
    }
  }
  return all;
}

std::vector<ZeroShape> zero_shapes(const Whole& whole) {
  std::vector<ZeroShape> all = {{.zero = 1},
                                {.zero = 2},
                                {.zero = 2, .each_micro_batch = true},
                                {.zero = 3},
                                {.zero = 3, .keep = true},
                                {.zero = 3, .each_micro_batch = true}};
  for (ZeroShape& shape : all) shape.sharded_groups = whole.sharded_groups;
  return all;
}

std::vector<Program> sharded(const Whole& whole, const ZeroShape& zero) {
  std::vector<Program> programs;
  for (const Program& program : whole.programs) programs.push_back(shard_over_replicas(program, zero));
  return programs;
}

std::string describe(const Whole& whole, const ZeroShape& zero) {
  return fmt::format("{}, stage {}{}{}", whole.name, zero.zero, zero.keep ? ", kept" : "",
                     zero.each_micro_batch ? ", each micro-batch" : "");
}

TEST(ShardOverReplicas, TheCheckerProvesWhatIsRewritten) {
  for (const Whole& whole : wholes()) {
    const auto expected = SymbolicRun(whole.programs).run();
    ASSERT_TRUE(expected.has_value()) << whole.name;
    for (const ZeroShape& zero : zero_shapes(whole)) {
      const std::vector<Program> programs = sharded(whole, zero);
      EXPECT_NO_THROW(check_programs(programs, whole.num_leaves)) << describe(whole, zero);
      const auto found = SymbolicRun(programs).run();
      ASSERT_TRUE(found.has_value()) << describe(whole, zero);
      if (!zero.each_micro_batch) {  // which sums in another order
        EXPECT_EQ(*found, *expected) << describe(whole, zero);
      }
    }
  }
}

/// Damages the lists of all replicas alike, so that none could notice it by the others.
std::string error_of_damage(const std::vector<Program>& programs, int num_leaves, size_t rank,
                            const std::function<void(std::vector<Instruction>&)>& damage) {
  std::vector<Program> damaged = programs;
  for (Program& program : damaged) {
    if (program.pipeline_rank == programs[rank].pipeline_rank) damage(program.instructions);
  }
  try {
    check_programs(damaged, num_leaves);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ShardOverReplicas, TheCheckerRefusesDamage) {
  for (const Whole& whole : wholes()) {
    for (const ZeroShape& zero : zero_shapes(whole)) {
      const std::vector<Program> programs = sharded(whole, zero);
      const size_t num_pipeline_ranks = static_cast<size_t>(programs[0].num_pipeline_ranks);
      for (size_t rank = 0; rank < num_pipeline_ranks; ++rank) {
        const std::vector<Instruction>& list = programs[rank].instructions;
        for (size_t at = 0; at < list.size(); ++at) {
          const auto place = static_cast<std::ptrdiff_t>(at);
          const auto expect_refused = [&](const std::string& what, const auto& damage) {
            EXPECT_NE(error_of_damage(programs, whole.num_leaves, rank, damage), "")
                << describe(whole, zero) << ", " << list[at].to_string() << " at " << at << ": " << what;
          };
          const bool gathers = list[at].op == OpCode::kAllGather, scatters = list[at].op == OpCode::kReduceScatter;
          if (gathers || scatters) {
            expect_refused("left out", [&](auto& each) { each.erase(each.begin() + place); });
            expect_refused("doubled", [&](auto& each) { each.insert(each.begin() + place, each[at]); });
          }
          if (scatters) {
            expect_refused("not shared", [&](auto& each) { each[at].op = OpCode::kAllReduce; });
            expect_refused("behind the update", [&](auto& each) {
              std::rotate(each.begin() + place, each.begin() + place + 1, each.end());
            });
            expect_refused("added or not", [&](auto& each) { each[at].add = !each[at].add; });
          }
          if (list[at].op == OpCode::kFree) {
            expect_refused("too early", [&](auto& each) {
              const auto of = [&](OpCode op) {
                return std::find_if(each.begin(), each.end(), [&](const Instruction& i) {
                  return i.op == op && i.stage == each[at].stage && i.micro_batch == each[at].micro_batch;
                });
              };
              const auto use =
                  of(OpCode::kSendActivation) == each.end() ? of(OpCode::kForward) : of(OpCode::kSendActivation);
              std::rotate(use, each.begin() + place, each.begin() + place + 1);
            });
          }
        }
      }
    }
  }
}

TEST(ShardOverReplicas, OfAPipelineEachStageHasItsOwnGroups) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 4});
  const PipelineShape shape{.schedule = schedule, .num_replicas = 2, .num_leaves = 8, .groups = {3, 2}};
  for (const int rank : {0, 1}) {
    const Program program = shard_over_replicas(lower_pipeline(shape, rank, 0), {.zero = 3, .sharded_groups = {2, 1}});
    EXPECT_EQ(count(program, OpCode::kReduceScatter), rank == 0 ? 2 : 1);
    EXPECT_EQ(count(program, OpCode::kAllReduce), 1);
    EXPECT_EQ(count(program, OpCode::kAllGather), (rank == 0 ? 2 : 1) * 2 * 4);
  }
}

}  // namespace
}  // namespace trireme
