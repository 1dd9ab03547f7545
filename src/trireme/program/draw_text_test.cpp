// Schedules drawn for a terminal.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/program/draw.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

TEST(DrawText, ComputationsWithoutDurationDoNotStretchThePicture) {
  const std::vector<Program> programs = lower_pipeline_ranks(
      {.schedule = make_schedule({.kind = ScheduleKind::kZbH1, .num_ranks = 2, .num_micro_batches = 4})});
  const std::string text =
      draw_text(make_timeline(programs, StageTimes::equal(2, 1, 1, 0, 0)), programs, {.width = 80});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;  // a line per rank, in one picture
  EXPECT_NE(text.find("F0 F1"), std::string::npos) << text;
}

}  // namespace
}  // namespace trireme
