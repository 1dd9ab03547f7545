#include "trireme/program/update.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/program/step.h"

namespace trireme {
namespace {

constexpr std::array kExchanges = {GradientExchange::kSum,          GradientExchange::kServers,
                                   GradientExchange::kAsyncServers, GradientExchange::kAdasum,
                                   GradientExchange::kMomenta,      GradientExchange::kLocal};

/// Two groups of gradients and one of values in each stage; the last stage uses a weight of the first.
StepShape pipeline_shape(int num_ranks, int num_replicas, GradientExchange exchange) {
  StepShape shape;
  shape.pipeline = {
      .schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = num_ranks, .num_micro_batches = 3}),
      .num_replicas = num_replicas,
      .groups = {3}};
  shape.num_micro_batches = 3 * num_replicas;
  shape.update = {.exchange = exchange, .norm = true, .tied = {{0, num_ranks - 1}}};
  return shape;
}

StepShape data_parallel_shape(int num_replicas, GradientExchange exchange) {
  StepShape shape;
  shape.pipeline.num_replicas = num_replicas;
  shape.pipeline.num_leaves = shape.num_micro_batches = 3 * num_replicas;
  shape.pipeline.groups = {3};
  shape.update = {.exchange = exchange, .norm = true, .tied = {{-1, -1}}};
  return shape;
}

std::vector<StepShape> shapes() {
  std::vector<StepShape> all;
  for (const GradientExchange exchange : kExchanges) {
    for (const int replicas : {1, 2, 3}) {
      for (const bool one_sum : {false, true}) {
        if (one_sum && exchange != GradientExchange::kServers) continue;
        all.push_back(data_parallel_shape(replicas, exchange));
        all.back().update.pushes_one_sum = one_sum;
        for (const int ranks : {2, 3}) {
          all.push_back(pipeline_shape(ranks, replicas, exchange));
          all.back().update.pushes_one_sum = one_sum;
        }
      }
    }
  }
  return all;
}

TEST(UpdateProgram, IsWholeWithEveryStageOfZero) {
  for (const int zero : {1, 2, 3}) {
    for (const bool each_micro_batch : {false, true}) {
      for (StepShape shape :
           {data_parallel_shape(3, GradientExchange::kSum), pipeline_shape(2, 2, GradientExchange::kSum)}) {
        shape.zero = {.zero = zero, .sharded_groups = {2, 2}, .each_micro_batch = each_micro_batch};
        EXPECT_NO_THROW(check_programs(programs_of(shape), shape.pipeline.leaves()))
            << programs_of(shape)[0].to_string();
      }
    }
  }
}

TEST(UpdateProgram, IsWholeForEveryExchange) {
  for (const StepShape& shape : shapes()) {
    const std::vector<Program> programs = programs_of(shape);
    EXPECT_NO_THROW(check_programs(programs, shape.pipeline.leaves())) << programs.front().to_string();
  }
}

bool is_end(const Instruction& i) {
  return is_tied(i.op) || i.op == OpCode::kPush || i.op == OpCode::kCombine || i.op == OpCode::kMeet ||
         i.op == OpCode::kNorm || i.op == OpCode::kPull;
}

TEST(UpdateProgram, WithoutOneOfItsInstructionsIsRefused) {
  size_t tried = 0;
  for (const StepShape& shape : shapes()) {
    const std::vector<Program> programs = programs_of(shape);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      for (size_t n = 0; n < programs[rank].instructions.size(); ++n) {
        if (!is_end(programs[rank].instructions[n])) continue;
        std::vector<Program> changed = programs;
        changed[rank].instructions.erase(changed[rank].instructions.begin() + static_cast<std::ptrdiff_t>(n));
        EXPECT_THROW(check_programs(changed, shape.pipeline.leaves()), Error)
            << "rank " << rank << " without " << programs[rank].instructions[n].to_string();
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 500u);
}

TEST(UpdateProgram, WithTwoOfItsInstructionsSwappedIsRefused) {
  for (const StepShape& shape : shapes()) {
    const std::vector<Program> programs = programs_of(shape);
    const std::vector<Instruction>& list = programs.front().instructions;
    const auto step =
        std::find_if(list.begin(), list.end(), [](const Instruction& i) { return i.op == OpCode::kOptimizerStep; });
    for (const std::ptrdiff_t by : {-1, 1}) {
      std::vector<Program> changed = programs;
      const auto at = changed[0].instructions.begin() + (step - list.begin());
      if (at + by == changed[0].instructions.end()) continue;
      std::iter_swap(at, at + by);
      EXPECT_THROW(check_programs(changed, shape.pipeline.leaves()), Error) << changed[0].to_string();
    }
  }
}

// A norm of gradients that are not all there would clip by part of them.
TEST(UpdateProgram, WithANormBeforeTheLastGradientsIsRefused) {
  for (const StepShape& shape : shapes()) {
    std::vector<Program> programs = programs_of(shape);
    std::vector<Instruction>& list = programs.front().instructions;
    const auto is = [](OpCode op) { return [op](const Instruction& i) { return i.op == op; }; };
    const auto norm = std::find_if(list.begin(), list.end(), is(OpCode::kNorm));
    const auto pass =
        std::find_if(list.rbegin(), list.rend(), [](const Instruction& i) { return makes_weight_gradient(i.op); });
    std::rotate(pass.base() - 1, norm, norm + 1);
    EXPECT_THROW(check_programs(programs, shape.pipeline.leaves()), Error) << programs.front().to_string();
  }
}

// An owner that waits for a gradient before its copy can be used, while the use waits for the owner's weight.
TEST(UpdateProgram, OfRanksThatWaitForEachOtherIsRefused) {
  StepShape shape = pipeline_shape(2, 1, GradientExchange::kSum);
  shape.update.tied.push_back({1, 0});
  std::vector<Program> programs = programs_of(shape);
  EXPECT_NO_THROW(check_programs(programs, shape.pipeline.leaves()));
  std::vector<Instruction>& list = programs[1].instructions;  // which now adds before it sends
  const auto first = std::find_if(list.begin(), list.end(), [](const Instruction& i) { return is_tied(i.op); });
  std::iter_swap(first, first + 1);
  try {
    check_programs(programs, shape.pipeline.leaves());
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tied weight"), std::string::npos) << error.what();
  }
}

TEST(UpdateProgram, RefreshesCopiesFirstWhereTheCallerUpdates) {
  StepShape shape = pipeline_shape(2, 1, GradientExchange::kSum);
  shape.update.refreshes_first = true;
  shape.update.norm = false;
  const std::vector<Program> programs = programs_of(shape);
  EXPECT_EQ(programs[0].instructions.front().op, OpCode::kSendTiedWeight);
  EXPECT_EQ(programs[1].instructions.front().op, OpCode::kTakeTiedWeight);
  EXPECT_EQ(programs[0].instructions.back().op, OpCode::kOptimizerStep);
  EXPECT_NO_THROW(check_programs(programs, shape.pipeline.leaves()));
}

}  // namespace
}  // namespace trireme
