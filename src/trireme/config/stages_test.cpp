#include "trireme/config/stages.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/resolve.h"

namespace trireme {
namespace {

Config with_stages(const std::string& stages, std::vector<std::string> more = {}) {
  more.push_back("--parallel.stages=" + stages);
  return resolve({.file = {}, .arguments = more, .default_preset = "gpt2-tiny"});
}

std::string refusal_of(const std::string& stages, int workers, const std::vector<std::string>& more = {}) {
  try {
    check(with_stages(stages, more), workers);
    return "no error";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Stages, AreReadBetweenCommasOrPluses) {
  const std::vector<StageDegrees> expected = {{2, 1}, {1, 4}};
  for (const char* text : {"2x1,1x4", "2x1+1x4", " 2x1, 1x4 ", "2 x 1,1x4"}) {
    EXPECT_EQ(stage_degrees(with_stages(text)), expected) << text;
  }
  EXPECT_EQ(stages_to_text(expected), "2x1,1x4");
  EXPECT_EQ(num_workers(expected), 6);
  EXPECT_EQ(num_lanes({{2, 1}, {3, 2}}), 6);
  EXPECT_TRUE(stage_degrees(with_stages("")).empty());
  EXPECT_EQ(with_stages("2x1,1x1,1x1").parallel.pp, 3);
}

TEST(Stages, WhatIsNoShapeIsNamed) {
  for (const char* text : {",", "2x1,", "2x1,,1x1", "+2x1,1x1", "x", "2x", "x2", "2", "2x1x1,1x1", "0x1,1x1",
                           "-1x1,1x1", "2X1,1x1", "1e3x1,1x1", "99999999999999999999x1,1x1"}) {
    EXPECT_NE(refusal_of(text, 3).find("is no shape of a stage"), std::string::npos) << text;
  }
}

TEST(Stages, NumbersStayInBounds) {
  EXPECT_NE(refusal_of("1048573x1,1048571x1,1048559x1", 3).find("are too many"), std::string::npos);
  EXPECT_NE(refusal_of("1048576x1048576,1x1", 3).find("are too many"), std::string::npos);
}

TEST(Stages, WhatDoesNotGoWithThemIsNamed) {
  EXPECT_EQ(refusal_of("2x1,1x1", 3), "no error");
  EXPECT_NE(refusal_of("2x1,1x1", 1).find("needs 3 workers, but there are 1"), std::string::npos);
  EXPECT_NE(refusal_of("2x1,1x1", 1).find("--parallel.stages= --parallel.pp=1"), std::string::npos);
  EXPECT_NE(refusal_of("2x1", 2).find("is one stage, not a pipeline"), std::string::npos);
  EXPECT_NE(refusal_of("2x1,1x1", 3, {"--local.method=diloco"}).find("local.method"), std::string::npos);
  EXPECT_NE(refusal_of("2x1,1x1", 3, {"--parallel.shares=1,1"}).find("parallel.shares"), std::string::npos);
  EXPECT_NE(refusal_of("5x1,1x1", 6, {"--train.global_batch=16"}).find("5 lanes, the least common multiple"),
            std::string::npos);
  const std::string split = refusal_of("1x1,1x1,1x1", 3, {"--parallel.split=3,3"});
  EXPECT_NE(split.find("parallel.split"), std::string::npos) << split;
  const std::string heads = refusal_of("2x1,1x3", 5, {"--model.heads=4", "--model.hidden=48"});
  EXPECT_NE(heads.find("model.heads = 4 cannot be split over tp of stage 1 (parallel.stages) = 3"), std::string::npos)
      << heads;
}

}  // namespace
}  // namespace trireme
