// What is written comes back, what was taken back does not, and damage is told.
#include "trireme/observe/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme {
namespace {

using Points = std::vector<std::pair<double, double>>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr uint64_t kSmall = 1 << 20;

std::chrono::system_clock::time_point noon() {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(1772366400250));
}

std::string line(int step, const std::string& kind = "step", const std::string& values = "{}") {
  return fmt::format("{{\"time\":\"t\",\"step\":{},\"kind\":\"{}\",\"values\":{}}}\n", step, kind, values);
}

std::string step_line(int step, double loss) { return line(step, "step", fmt::format("{{\"loss\":{}}}", loss)); }

TEST(EventLog, BytesOfALine) {
  const TestFolder folder;
  EventLog log(folder / "events.jsonl", noon);
  log.append(EventKind::kStep, 120, {{"loss", 1.5}, {"tokens", size_t{7}}, {"ok", true}, {"note", "a \"b\"\n"}});
  EXPECT_EQ(read_whole_file(folder / "events.jsonl", kSmall),
            "{\"time\":\"2026-03-01T12:00:00.250Z\",\"step\":120,\"kind\":\"step\","
            "\"values\":{\"loss\":1.5,\"tokens\":7,\"ok\":true,\"note\":\"a \\\"b\\\"\\n\"}}\n");
}

TEST(EventLog, EveryValueAndKindComesBack) {
  const TestFolder folder;
  EventLog log(folder / "e", noon);
  const EventValues values = {{"a", 0.1},          {"b", -kInf},     {"c", kInf},
                              {"d", std::nan("")}, {"e", INT64_MIN}, {"f", "x"},
                              {"g", false},        {"h", ""},        {"bad \xff utf", "\xc3(\x01 bad"},
                              {"i", 3.0f}};
  for (int kind = 0; kind < 8; ++kind) log.append(static_cast<EventKind>(kind), kind, values);
  const EventHistory history = read_events(folder / "e");
  ASSERT_EQ(history.events.size(), 8u);
  EXPECT_TRUE(history.problems.empty());
  EXPECT_FALSE(history.torn);
  for (int kind = 0; kind < 8; ++kind) {
    const Event& event = history.events[static_cast<size_t>(kind)];
    EXPECT_EQ(event.kind, static_cast<EventKind>(kind));
    EXPECT_EQ(event.step, kind);
    EXPECT_EQ(event.time, "2026-03-01T12:00:00.250Z");
    EXPECT_EQ(event.values.size(), values.size());
    EXPECT_EQ(event.number("a"), 0.1);
    EXPECT_EQ(event.number("b"), -kInf);
    EXPECT_EQ(event.number("c"), kInf);
    EXPECT_TRUE(std::isnan(event.number("d").value()));
    EXPECT_EQ(*event.find("e"), EventValue(INT64_MIN));
    EXPECT_EQ(event.text("f"), "x");
    EXPECT_EQ(event.number("f"), std::nullopt);
    EXPECT_EQ(event.number("g"), 0);
    EXPECT_EQ(event.number("i"), 3);
    EXPECT_EQ(event.number("none"), std::nullopt);
    EXPECT_EQ(event.text("none"), "");
  }
}

TEST(EventLog, TimeBeforeTheEpochAndRounding) {
  EXPECT_EQ(format_utc(std::chrono::system_clock::time_point(std::chrono::microseconds(-1))),
            "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(format_utc(std::chrono::system_clock::time_point(std::chrono::microseconds(1999))),
            "1970-01-01T00:00:00.001Z");
}

TEST(EventHistory, ResumeTakesBackLaterSteps) {
  std::string text = line(0, "start");
  for (int step = 1; step <= 7; ++step) text += step_line(step, step);
  text += line(4, "checkpoint") + line(6, "checkpoint") + line(6, "eval", "{\"loss\":6}") + line(6, "warning");
  text += line(4, "resume") + step_line(5, 50) + step_line(6, 60);
  const EventHistory history = parse_events(text);
  EXPECT_EQ(history.series(EventKind::kStep, "loss"), (Points{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 50}, {6, 60}}));
  EXPECT_EQ(history.series(EventKind::kEval, "loss"), Points{});
  EXPECT_EQ(history.num_superseded, 5u);  // steps 5, 6 and 7, the later checkpoint and the eval
  size_t warnings = 0, checkpoints = 0;
  for (const Event& event : history.events) {
    warnings += event.kind == EventKind::kWarning;
    checkpoints += event.kind == EventKind::kCheckpoint;
  }
  EXPECT_EQ(warnings, 1u) << "it happened";
  EXPECT_EQ(checkpoints, 1u);
}

TEST(EventHistory, TheLastOfAStepCountsAlsoWithoutResume) {
  const EventHistory history =
      parse_events(step_line(1, 1) + step_line(2, 2) + step_line(3, 3) + step_line(2, 20) + line(2, "eval"));
  EXPECT_EQ(history.series(EventKind::kStep, "loss"), (Points{{1, 1}, {2, 20}, {3, 3}}));
  EXPECT_EQ(history.num_superseded, 1u);
}

TEST(EventHistory, AnyStoryEqualsASimpleModel) {
  std::mt19937 random(7);
  for (int story = 0; story < 200; ++story) {
    std::map<int64_t, double> model;
    std::string text;
    int step = 0;
    for (int i = 0; i < 60; ++i) {
      if (step > 0 && random() % 10 == 0) {
        step = static_cast<int>(random() % static_cast<uint32_t>(step + 1));
        model.erase(model.upper_bound(step), model.end());
        text += line(step, "resume");
      } else {
        model[++step] = i;
        text += step_line(step, i);
      }
    }
    const Points expected(model.begin(), model.end());
    ASSERT_EQ(parse_events(text).series(EventKind::kStep, "loss"), expected) << text;
  }
}

TEST(EventHistory, ATornLastLineIsToleratedAtEveryByte) {
  const std::string whole = step_line(1, 1), last = step_line(2, 2);
  for (size_t size = 0; size <= last.size(); ++size) {
    const EventHistory history = parse_events(whole + last.substr(0, size));
    const bool complete = size + 1 >= last.size();  // but for the newline
    EXPECT_EQ(history.events.size(), complete ? 2u : 1u) << size;
    EXPECT_EQ(history.torn, size > 0 && !complete) << size;
    EXPECT_TRUE(history.problems.empty()) << size;
  }
}

TEST(EventHistory, OtherDamageIsTold) {
  const struct {
    std::string line, problem;
  } cases[] = {
      {"{\"time\":\n", "line 2: not JSON: {\"time\":"},
      {"\n", "line 2: not JSON: "},
      {"[1]\n", "line 2: not an object"},
      {"{\"time\":\"t\",\"kind\":\"step\",\"values\":{}}\n", "line 2: no whole number \"step\""},
      {"{\"time\":\"t\",\"step\":1.5,\"kind\":\"step\",\"values\":{}}\n", "line 2: no whole number \"step\""},
      {"{\"time\":\"t\",\"step\":18446744073709551615,\"kind\":\"step\",\"values\":{}}\n",
       "line 2: the step 18446744073709551615 is too large"},
      {"{\"step\":1,\"kind\":\"step\",\"values\":{}}\n", "line 2: no text \"time\""},
      {"{\"time\":\"t\",\"step\":1,\"kind\":\"step\"}\n", "line 2: no object \"values\""},
      {line(1, "party"), "line 2: unknown kind \"party\""},
      {line(1, "step", "{\"x\":[]}"), "line 2: \"x\" is neither a number, a text, true nor false"},
  };
  for (const auto& [damaged, problem] : cases) {
    const EventHistory history = parse_events(step_line(1, 1) + damaged + step_line(2, 2));
    EXPECT_EQ(history.problems, std::vector<std::string>{problem});
    EXPECT_EQ(history.events.size(), 2u) << problem;
    EXPECT_FALSE(history.torn);
  }
  EXPECT_THROW(read_events("/no/such/file"), SystemError);
}

TEST(EventHistory, AnyBytesAreReadOrTold) {
  std::mt19937 random(3);
  std::string good;
  for (int step = 1; step < 20; ++step) good += step_line(step, step * 0.5);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (uint32_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 30);
          break;
        default:
          text.insert(at, 1 + random() % 3, "{}[]\",\n0"[random() % 8]);
      }
      if (text.empty()) text = "x";
    }
    const EventHistory history = parse_events(text);
    const size_t num_lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + (text.back() != '\n');
    ASSERT_EQ(history.events.size() + history.num_superseded + history.problems.size() + history.torn, num_lines);
  }
}

TEST(EventLog, ContinuesAfterAKilledWriter) {
  const TestFolder folder;
  const std::string last = step_line(2, 2);
  for (size_t size = 0; size <= last.size(); ++size) {
    const auto path = folder / fmt::format("e{}", size);
    std::ofstream(path) << step_line(1, 1) << last.substr(0, size);
    EventLog(path, noon).append(EventKind::kStep, 3, {{"loss", 3}});
    const EventHistory history = read_events(path);
    EXPECT_TRUE(history.problems.empty() && !history.torn) << size;
    const Points expected = size + 1 >= last.size() ? Points{{1, 1}, {2, 2}, {3, 3}} : Points{{1, 1}, {3, 3}};
    EXPECT_EQ(history.series(EventKind::kStep, "loss"), expected) << size;
  }
}

TEST(EventLog, AFailedAppendLeavesTheLogWhole) {
  const TestFolder folder;
  EventLog log(folder / "e", noon);
  log.append(EventKind::kStart, 0);
  set_pretended_space(20);  // less than a line
  try {
    log.append(EventKind::kStep, 1);
    ADD_FAILURE();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_NE(std::string(error.what()).find((folder / "e").string()), std::string::npos) << error.what();
  }
  set_pretended_space({});
  log.append(EventKind::kStep, 2);
  const EventHistory history = read_events(folder / "e");
  EXPECT_TRUE(history.problems.empty());
  ASSERT_EQ(history.events.size(), 2u);
  EXPECT_EQ(history.events[1].step, 2);
}

TEST(EventLog, ThreadsDoNotMixLines) {
  const TestFolder folder;
  {
    EventLog log(folder / "e");
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&log, thread] {
        for (int i = 0; i < 200; ++i)
          log.append(EventKind::kStep, thread * 1000 + i, {{"text", std::string(300, 'x')}});
      });
    }
  }
  const EventHistory history = read_events(folder / "e");
  EXPECT_EQ(history.events.size(), 800u);
  EXPECT_TRUE(history.problems.empty());
}

}  // namespace
}  // namespace trireme
