#include <gtest/gtest.h>

#include <regex>

#include "trireme/program/draw.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

TEST(DrawSvg, HasATickPerMillisecondOfEight) {
  const std::vector<Program> programs = lower_pipeline_ranks(
      {.schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_ranks = 1, .num_micro_batches = 4})});
  const std::string svg = draw_svg(make_timeline(programs, StageTimes::equal(1, 1, 0.5, 0.5, 0)), programs, "a step");
  const std::regex tick("tr-tick\">([^<]*)");
  std::vector<std::string> ticks;
  for (std::sregex_iterator at(svg.begin(), svg.end(), tick), end; at != end; ++at) ticks.push_back((*at)[1]);
  EXPECT_EQ(ticks, (std::vector<std::string>{"0 ms", "1", "2", "3", "4", "5", "6", "7", "8"}));
}

}  // namespace
}  // namespace trireme
