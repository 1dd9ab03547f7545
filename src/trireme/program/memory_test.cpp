#include "trireme/program/memory.h"

#include <gtest/gtest.h>

#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

TEST(PeakMemory, KeepsNoInputsForStashedWeights) {
  const std::vector<Program> programs = lower_pipeline_ranks(
      {.schedule = make_schedule({.kind = ScheduleKind::kPipeDream, .num_ranks = 3, .num_micro_batches = 9})});
  for (const Program& program : programs) EXPECT_EQ(peak_memory(program).inputs, 0);
  EXPECT_EQ(peak_memory(programs[0]).weight_versions, 3);
}

}  // namespace
}  // namespace trireme
