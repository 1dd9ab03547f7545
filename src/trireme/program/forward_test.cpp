#include "trireme/program/forward.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"

namespace trireme {
namespace {

std::vector<StepShape> shapes() {
  std::vector<StepShape> all;
  for (const int replicas : {1, 2, 3}) {
    for (const int zero : {0, 1, 3}) {
      StepShape shape;
      shape.pipeline.num_replicas = replicas;
      shape.pipeline.groups = {3};
      shape.zero = {.zero = zero, .sharded_groups = {2}};
      all.push_back(shape);
      for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kInterleaved, ScheduleKind::kZbV}) {
        shape.pipeline.schedule = make_schedule({.kind = kind,
                                                 .num_ranks = 2,
                                                 .num_micro_batches = 4,
                                                 .interleave = kind == ScheduleKind::kInterleaved ? 2 : 0});
        shape.zero.sharded_groups.assign(static_cast<size_t>(shape.pipeline.schedule.num_stages()), 2);
        all.push_back(shape);
      }
    }
  }
  StepShape uneven;
  uneven.pipeline.schedule = make_schedule({.kind = ScheduleKind::k1F1B, .num_ranks = 3, .num_micro_batches = 2});
  uneven.pipeline.num_replicas = 6;
  uneven.pipeline.replicas = {2, 1, 3};
  all.push_back(uneven);
  return all;
}

TEST(ForwardProgram, IsWholeInEveryLayout) {
  for (const StepShape& shape : shapes()) {
    for (const int passes : {1, 2, 5}) {
      const std::vector<Program> programs = forward_programs_of(shape, passes);
      EXPECT_NO_THROW(check_programs(programs, 1)) << programs.front().to_string();
      std::map<std::pair<int, int>, int> computed;  // stage, micro-batch
      for (const Program& program : programs) {
        for (const Instruction& i : program.instructions) {
          if (i.op == OpCode::kForward) ++computed[{i.stage, i.micro_batch}];
        }
      }
      EXPECT_EQ(computed.size(),
                static_cast<size_t>(passes * shape.pipeline.num_replicas * programs.front().num_stages()));
      for (const auto& [place, times] : computed) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ForwardProgram, WithoutOneOfItsInstructionsIsRefused) {
  for (const StepShape& shape : shapes()) {
    const std::vector<Program> programs = forward_programs_of(shape, 2);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      for (size_t n = 0; n < programs[rank].instructions.size(); ++n) {
        const Instruction& gone = programs[rank].instructions[n];
        if (gone.op == OpCode::kForward && !shape.is_pipeline()) continue;  // then there is one pass less
        std::vector<Program> changed = programs;
        changed[rank].instructions.erase(changed[rank].instructions.begin() + static_cast<std::ptrdiff_t>(n));
        const bool is_last = gone.op == OpCode::kForward && gone.stage + 1 == programs[rank].num_stages();
        if (is_last) continue;  // nobody waits for it
        EXPECT_THROW(check_programs(changed, 1), Error) << gone.to_string();
      }
    }
  }
}

TEST(ForwardProgram, HasNoGradients) {
  std::vector<Program> programs = forward_programs_of(StepShape(), 1);
  programs[0].num_slots = 1;
  programs[0].instructions.push_back({.op = OpCode::kBackward, .micro_batch = 0, .slot = 0});
  EXPECT_THROW(check_programs(programs, 1), Error);
}

// A rank of several stages computes what it can while others have the rest: nobody has two passes in a row to wait for.
TEST(ForwardProgram, GoesOnLikeAWave) {
  StepShape shape;
  shape.pipeline.schedule =
      make_schedule({.kind = ScheduleKind::kInterleaved, .num_ranks = 2, .num_micro_batches = 4, .interleave = 2});
  const Program program = forward_program_of(shape, 3, 0, 0);
  std::string order;
  for (const Instruction& i : program.instructions) {
    if (i.op == OpCode::kForward) order += std::to_string(i.stage) + std::to_string(i.micro_batch) + " ";
  }
  EXPECT_EQ(order, "00 01 02 20 21 22 ");
}

}  // namespace
}  // namespace trireme
