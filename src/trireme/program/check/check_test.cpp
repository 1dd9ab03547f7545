// The checker against damage: what it accepts must come to the same weights.
#include "trireme/program/check/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "trireme/base/error.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/symbolic_test_util.h"
#include "trireme/program/zero.h"

namespace trireme {
namespace {

struct Case {
  std::string name;
  std::vector<Program> programs;
  int num_leaves = 1;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ScheduleKind kind : schedule_kinds()) {
    for (const int replicas : {1, 2}) {
      const Schedule schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = 6});
      const int leaves = schedule.micro_batches_in_update() * replicas;
      all.push_back({fmt::format("{} × {}", name_of(kind), replicas),
                     lower_pipeline_all({.schedule = schedule,
                                         .num_replicas = replicas,
                                         .num_leaves = leaves,
                                         .groups = {2},
                                         .recompute = {replicas == 2}}),
                     leaves});
    }
  }
  const auto add_sharded = [&](const std::string& name, std::vector<Program> programs, int leaves, ZeroShape zero) {
    for (Program& program : programs) {
      zero.sharded_groups.assign(static_cast<size_t>(program.num_stages()), 2);
      program = shard_over_replicas(std::move(program), zero);
    }
    all.push_back({name, std::move(programs), leaves});
  };
  for (const bool each : {false, true}) {
    const std::string name = each ? ", each micro-batch" : "";
    add_sharded("stage 2" + name, lower_data_parallel_all({6, 6, 2, 3}), 6, {.zero = 2, .each_micro_batch = each});
    add_sharded("stage 3, kept" + name, lower_data_parallel_all({8, 8, 2, 3}), 8,
                {.zero = 3, .keep = true, .each_micro_batch = each});
    const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 3, .num_micro_batches = 4});
    const PipelineShape shape{
        .schedule = schedule, .num_replicas = 2, .num_leaves = 8, .groups = {3}, .recompute = {each}};
    add_sharded("stage 3" + name, lower_pipeline_all(shape), 8, {.zero = 3, .each_micro_batch = each});
  }
  return all;
}

std::string error_of(const std::vector<Program>& programs, int num_leaves) {
  try {
    check_programs(programs, num_leaves);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  /// Says what was changed.
  std::string change(std::vector<Program>& programs) {
    Program& program = programs[below(programs.size())];
    std::vector<Instruction>& list = program.instructions;
    const size_t at = below(list.size());
    const std::string what = fmt::format("{} at {}", list[at].to_string(), at);
    switch (below(4)) {
      case 0: {
        const size_t other = below(2) == 0 ? std::min(at + 1, list.size() - 1) : below(list.size());
        std::swap(list[at], list[other]);
        return fmt::format("{} swapped with {}", what, other);
      }
      case 1:
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        return what + " dropped";
      case 2:
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(below(list.size() + 1)), list[at]);
        return what + " duplicated";
      default:
        return fmt::format("{} retargeted to {}", what, retarget(program, list[at]));
    }
  }

  size_t below(size_t n) { return random_() % n; }

 private:
  std::string retarget(const Program& program, Instruction& instruction) {
    const auto move = [&](int& field) { field += below(2) == 0 ? 1 : -1; };
    switch (below(6)) {
      case 0:
        move(instruction.stage);
        break;
      case 1:
        instruction.micro_batch = static_cast<int>(below(static_cast<size_t>(program.num_micro_batches)));
        break;
      case 2:
        move(instruction.peer);
        break;
      case 3:
        if (instruction.slot >= 0) move(instruction.slot);
        break;
      case 4:
        instruction.group = instruction.group == 0 ? 1 : 0;
        break;
      default:
        if (makes_weight_gradient(instruction.op)) instruction.add = !instruction.add;
        if (instruction.version >= 0) move(instruction.version);
    }
    return instruction.to_string();
  }

  std::mt19937 random_;
};

TEST(CheckPrograms, FindsEveryMutantThatIsNotHarmless) {
  const std::vector<Case> all = cases();
  Mutator mutator(7);
  const int num_mutants = std::getenv("TRIREME_SANITIZED") != nullptr ? 300 : 5000;
  int caught = 0;
  for (int i = 0; i < num_mutants; ++i) {
    const Case& one = all[static_cast<size_t>(i) % all.size()];
    std::vector<Program> mutant = one.programs;
    const std::string what = mutator.change(mutant);
    const std::string error = error_of(mutant, one.num_leaves);
    if (!error.empty()) {
      ++caught;
      continue;
    }
    const auto expected = SymbolicRun(one.programs).run();
    const auto found = SymbolicRun(mutant).run();
    ASSERT_TRUE(expected.has_value());
    ASSERT_TRUE(found.has_value()) << one.name << ": " << what << " hangs, and was accepted";
    EXPECT_EQ(*found, *expected) << one.name << ": " << what << " was accepted";
  }
  EXPECT_GT(caught, num_mutants * 6 / 10);
  RecordProperty("caught", caught);
}

TEST(CheckPrograms, NamesRankInstructionAndReason) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 2, .num_micro_batches = 2});
  const std::vector<Program> good = lower_pipeline_ranks({.schedule = schedule});
  const auto without = [&](size_t rank, OpCode op) {
    std::vector<Program> programs = good;
    auto& list = programs[rank].instructions;
    list.erase(std::find_if(list.begin(), list.end(), [op](const Instruction& i) { return i.op == op; }));
    return error_of(programs, 2);
  };
  EXPECT_EQ(
      without(1, OpCode::kRecvActivation),
      "program of rank 1, instruction 0, RecvActivation stage 1 micro-batch 1 peer -1: message 0 from rank 0 to rank "
      "1 is the input of stage 1, micro-batch 0 where it is sent, and the input of stage 1, micro-batch 1 where it "
      "is received");
  const std::string unsent = without(0, OpCode::kSendActivation);
  EXPECT_NE(unsent.find("message 0 from rank 0 to rank 1"), std::string::npos) << unsent;
  EXPECT_EQ(without(1, OpCode::kForward),
            "program of rank 1, instruction 2, Backward stage 1 micro-batch 0 -> slot 0: its Forward is missing");
  EXPECT_EQ(without(0, OpCode::kOptimizerStep), "program of rank 0: there is no step of the optimizer");
}

TEST(CheckPrograms, KeepsTheOrderOfSums) {
  Schedule schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_ranks = 2, .num_micro_batches = 2});
  for (std::vector<Instruction>& list : schedule.ranks) std::swap(list[2], list[3]);
  try {
    lower_pipeline_ranks({.schedule = schedule});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0, Backward stage 0 micro-batch 1: weight gradients of a stage are summed in the order of "
                 "micro-batches, and 0 is the next");
  }
}

TEST(CheckPrograms, FindsRanksThatWaitForEachOther) {
  Schedule schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_ranks = 2, .num_micro_batches = 2});
  // Rank 0 wants a gradient before it has sent what the gradient comes from.
  std::swap(schedule.ranks[0][1], schedule.ranks[0][2]);
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  const std::string error = error_of(lower_pipeline_ranks({.schedule = schedule}), 2);
  EXPECT_NE(error.find("the program would hang: rank 0 waits at"), std::string::npos) << error;
  EXPECT_NE(error.find("rank 1 waits at"), std::string::npos) << error;
}

}  // namespace
}  // namespace trireme
