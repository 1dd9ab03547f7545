// The story of a run from its folder: finished, stopped, failed, killed, going on, resumed, and of older versions.
#include "trireme/observe/run_report.h"

#include <gtest/gtest.h>

#include <fstream>

#include "trireme/base/error.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme {
namespace {

/// A run folder whose log is written with times of choice.
class StoryTest : public testing::Test {
 protected:
  StoryTest() : run_{folder_ / "default-1"} { std::filesystem::create_directories(run_.checkpoints()); }

  void add(int second, EventKind kind, int64_t step, const EventValues& values = {}) {
    EventLog log(run_.events(), [second] {
      return std::chrono::system_clock::time_point(std::chrono::seconds(1'800'000'000 + second));
    });
    log.append(kind, step, values);
  }
  void start(int second, int64_t step = 0) {
    add(second, EventKind::kStart, step,
        {{"workers", 2},
         {"steps", 100},
         {"unit", "tokens"},
         {"units_per_step", 2048},
         {"parameters", 12345},
         {"target_loss", 0.75},
         {"model", "gpt2"},
         {"data", "text my.txt"}});
  }
  void step(int second, int64_t step, double speed) {
    add(second, EventKind::kStep, step, {{"loss", 1.0}, {"tokens_per_s", speed}});
  }
  static std::string fact(const RunStory& story, const std::string& name) {
    for (const auto& [key, value] : story.report.facts) {
      if (key == name) return value;
    }
    return "";
  }

  TestFolder folder_;
  RunPaths run_;
};

TEST_F(StoryTest, OfARunThatHasEnded) {
  start(0);
  step(1, 1, 10);
  step(2, 100, 4000);
  add(3, EventKind::kEval, 100, {{"loss", 0.5}});
  add(4, EventKind::kEnd, 100);
  const RunStory story = story_of_run(run_);
  EXPECT_EQ(story.state, RunState::kFinished);
  EXPECT_EQ(story.report.title, "default-1");
  EXPECT_EQ(story.report.verdict, "Learnt it.");
  EXPECT_EQ(story.report.summary, "100 steps of 2,048 tokens on 2 workers; held-out loss 0.5000.");
  EXPECT_EQ(fact(story, "speed"), "4,000 tok/s");
  EXPECT_EQ(fact(story, "time"), "4 s");
  EXPECT_EQ(story.report.settings.at(0), (std::pair<std::string, std::string>("model", "gpt2")));
}

TEST_F(StoryTest, OfARunThatWasKilledAndOfOneGoingOn) {
  start(0);
  step(1, 1, 10);
  step(9, 40, 4000);
  RunStory story = story_of_run(run_);
  EXPECT_EQ(story.state, RunState::kEnded);
  EXPECT_EQ(story.report.summary, "40 of 100 steps of 2,048 tokens on 2 workers.");
  const RunFolder held = RunFolder::open(run_.folder);
  story = story_of_run(run_);
  EXPECT_EQ(story.state, RunState::kRunning);
  EXPECT_EQ(story.report.verdict, "Running.");
  EXPECT_FALSE(story.held_out_loss);
}

TEST_F(StoryTest, AResumedRunCountsTheTimeOfAllItsParts) {
  start(0);
  step(1, 1, 10);
  step(30, 60, 4000);
  add(31, EventKind::kStop, 60, {{"reason", "signal 2"}});
  EXPECT_EQ(story_of_run(run_).state, RunState::kStopped);
  start(1000, 60);
  add(1000, EventKind::kResume, 50, {{"checkpoint", "checkpoints/step-000050"}});
  step(1002, 51, 10);
  step(1020, 100, 4000);
  add(1020, EventKind::kEnd, 100);
  const RunStory story = story_of_run(run_);
  EXPECT_EQ(story.num_parts, 2);
  EXPECT_EQ(story.seconds, 31 + 20);
  EXPECT_EQ(fact(story, "speed"), "4,000 tok/s");
  // What each process needs to get going is no speed.
  EXPECT_EQ(story.report.speed, (RunReport::Points{{100, 4000}}));
}

TEST_F(StoryTest, ARunThatWentBackIsWhereItIs) {
  start(0);
  step(1, 1, 10);
  step(30, 60, 4000);
  add(31, EventKind::kStop, 60, {{"reason", "signal 2"}});
  start(1000, 50);
  add(1000, EventKind::kResume, 50, {{"checkpoint", "checkpoints/step-000050"}});
  step(1001, 51, 10);
  EXPECT_EQ(story_of_run(run_).step, 51);
  start(2000);
  add(2000, EventKind::kResume, 0, {{"message", "begins anew"}});
  step(2001, 3, 10);
  add(2002, EventKind::kEnd, 3);
  EXPECT_EQ(story_of_run(run_).step, 3);
}

TEST_F(StoryTest, ListsTheCheckpointsThatAreThere) {
  start(0);
  for (const int at : {10, 20, 30}) {
    add(at, EventKind::kCheckpoint, at, {{"path", "elsewhere/step-0000" + std::to_string(at)}, {"note", "verified"}});
  }
  std::filesystem::create_directory(run_.checkpoints() / "step-000030");
  const RunReport report = story_of_run(run_).report;
  ASSERT_EQ(report.checkpoints.size(), 1u);
  EXPECT_EQ(report.checkpoints[0].path, "step-000030");
  EXPECT_NE(to_html(report).find("2 older ones were removed since"), std::string::npos);
}

TEST_F(StoryTest, OfAFailure) {
  start(0);
  add(1, EventKind::kStop, 7, {{"reason", "a gradient is not finite"}, {"failed", true}});
  const RunStory story = story_of_run(run_);
  EXPECT_EQ(story.state, RunState::kFailed);
  EXPECT_EQ(story.report.incidents.back().message, "a gradient is not finite");
}

TEST_F(StoryTest, OfAnOlderVersion) {
  add(0, EventKind::kStart, 0, {{"message", "2 workers, tcp"}});
  add(0, EventKind::kResume, 0, {{"checkpoint", ""}});
  step(1, 1, 10);
  add(2, EventKind::kEnd, 1);
  const RunStory story = story_of_run(run_);
  EXPECT_EQ(story.report.summary, "1 step.");
  EXPECT_EQ(story.report.verdict, "");
  for (const RunReport::Incident& incident : story.report.incidents) EXPECT_NE(incident.kind, "resume");
}

TEST_F(StoryTest, ErrorsNameTheFolder) {
  const auto said = [](const RunPaths& run) -> std::string {
    try {
      story_of_run(run);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(said({folder_ / "nowhere"}).find("there is no folder"), std::string::npos);
  EXPECT_NE(said({folder_.path()}).find("is no run folder: it has no events.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace trireme
