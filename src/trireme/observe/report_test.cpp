// Pages of whole runs, of one step, of a hundred thousand, and of nothing; nothing foreign gets in unescaped.
#include "trireme/observe/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "trireme/base/error.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Every tag that opens closes, in order.
void expect_balanced(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const bool closes = html[at + 1] == '/';
    const std::string tag = html.substr(at + 1 + closes, html.find_first_of(" >\n", at) - at - 1 - closes);
    if (tag == "!doctype" || tag == "meta" || html[end - 1] == '/') continue;
    if (!closes) {
      open.push_back(tag);
      continue;
    }
    ASSERT_FALSE(open.empty()) << tag;
    ASSERT_EQ(open.back(), tag) << html.substr(at > 80 ? at - 80 : 0, 120);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

RunReport example(size_t num_steps) {
  RunReport report;
  report.title = "default-1";
  report.verdict = "Learnt it.";
  report.tone = Tone::kGood;
  report.summary = "Held-out loss 0.381, below the target of 0.45.";
  report.facts = {{"held-out loss", "0.381"}, {"time", "62 s"}};
  std::mt19937 random(5);
  for (size_t i = 1; i <= num_steps; ++i) {
    const double x = static_cast<double>(i), noise = static_cast<double>(random() % 1000) / 5000;
    report.training_loss.emplace_back(x, 0.35 + 3 * std::exp(-6 * x / static_cast<double>(num_steps)) + noise);
    report.speed.emplace_back(x, 5000 - 1000 * noise);
    report.learning_rate.emplace_back(x, 3e-4);
    if (i % (num_steps / 8 + 1) == 0) report.held_out_loss.emplace_back(x, 0.4);
  }
  report.target_loss = 0.45;
  report.step_parts = {{"data", 0.001}, {"forward", 0.02}, {"backward", 0.04}, {"exposed communication", 0.002}};
  report.settings = {{"train.steps", "600"}};
  report.config = "[train]\nsteps = 600\n";
  report.checkpoints = {{600, "checkpoints/step-000600", 5 << 20, 0.2, "verified"}};
  report.incidents = {{"2026-03-01 12:00:00", 300, "resume", "from step-000300"}};
  return report;
}

TEST(Report, HoldsEverything) {
  const std::string html = to_html(example(600));
  for (const char* part : {"<title>default-1</title>",
                           "<b>Learnt it.</b>Held-out loss 0.381",
                           "verdict good",
                           "<dd>62 s</dd>",
                           ">training<",
                           ">held out<",
                           ">target 0.45<",
                           "tr-dash",
                           ">Speed (tok/s)<",
                           ">Learning rate<",
                           "exposed communication",
                           "Where the time of a step goes",
                           "<td>train.steps</td><td>600</td>",
                           "<details>",
                           "steps = 600",
                           "checkpoints/step-000600",
                           "5 MiB",
                           "verified",
                           "from step-000300",
                           "prefers-color-scheme"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  EXPECT_EQ(count(html, "http"), count(html, "http://www.w3.org/2000/svg")) << "nothing from outside";
  EXPECT_FALSE(has(html, "<script"));
  EXPECT_FALSE(has(html, "url("));
  expect_balanced(html);
}

TEST(Report, AnyNumberOfSteps) {
  for (const size_t num_steps : {1u, 2u, 3u, 5u, 399u, 400u, 100'000u}) {
    const std::string html = to_html(example(num_steps));
    EXPECT_FALSE(has(html, "nan") || has(html, "inf\"")) << num_steps;
    EXPECT_LT(html.size(), 400'000u) << num_steps;
    expect_balanced(html);
  }
}

TEST(Report, ExtremesOutliveThinning) {
  RunReport report;
  for (int i = 0; i < 100'000; ++i) report.training_loss.emplace_back(i, i == 77'777 ? 9.0 : 1.0);
  const std::string with = to_html(report);
  report.training_loss[77'777].second = 1;
  const std::string without = to_html(report);
  EXPECT_TRUE(has(with, ">8<")) << "the axis reaches the spike";
  EXPECT_FALSE(has(without, ">8<"));
}

TEST(Report, EveryPartMayBeMissing) {
  const std::string empty = to_html({});
  EXPECT_TRUE(has(empty, "<h1>Run</h1>"));
  EXPECT_FALSE(has(empty, "<svg") || has(empty, "<table") || has(empty, "<h2>"));
  for (int missing = 0; missing < 9; ++missing) {
    RunReport report = example(20);
    if (missing == 0) report.training_loss.clear();
    if (missing == 1) report.held_out_loss.clear();
    if (missing == 2) report.target_loss.reset();
    if (missing == 3) report.speed.clear();
    if (missing == 4) report.learning_rate.clear();
    if (missing == 5) report.step_parts.clear();
    if (missing == 6) report.settings.clear();
    if (missing == 7) report.config.clear();
    if (missing == 8) report.verdict.clear(), report.summary.clear();
    expect_balanced(to_html(report));
  }
}

TEST(Report, EscapesEverything) {
  const std::string evil = "<script>alert('x')</script>\"&\x01";
  RunReport report = example(3);
  report.title = report.verdict = report.summary = report.speed_unit = report.config = evil;
  report.facts = report.settings = {{evil, evil}};
  report.step_parts = {{evil, 1}};
  report.checkpoints = {{1, evil, {}, {}, evil}};
  report.incidents = {{evil, 1, evil, evil}};
  const std::string html = to_html(report);
  EXPECT_FALSE(has(html, "<script") || has(html, "'x'") || has(html, "\x01"));
  expect_balanced(html);
}

TEST(Report, LossesThatAreNotFinite) {
  RunReport report = example(600);
  report.training_loss[10].second = std::nan("");
  report.training_loss[11].second = std::numeric_limits<double>::infinity();
  report.step_parts = {{"a", std::nan("")}, {"b", -1}, {"c", 0}};
  const std::string html = to_html(report);
  EXPECT_TRUE(has(html, "2 of the losses are not finite"));
  EXPECT_FALSE(has(html, "Where the time"));
  for (auto& [step, loss] : report.training_loss) loss = std::nan("");
  expect_balanced(to_html(report));
}

TEST(Report, LongListsAreCut) {
  RunReport report;
  for (int i = 0; i < 1000; ++i) report.incidents.push_back({"t", i, "warning", "w" + std::to_string(i) + "."});
  const std::string html = to_html(report);
  EXPECT_TRUE(has(html, "The last 200 of 1,000"));
  EXPECT_TRUE(has(html, "w999.") && has(html, "w800."));
  EXPECT_FALSE(has(html, "w799."));
}

TEST(Report, FromEvents) {
  EventHistory history;
  const auto add = [&](EventKind kind, int64_t step, EventValues values) {
    history.events.push_back({"2026-03-01T12:00:00.250Z", step, kind, std::move(values)});
  };
  add(EventKind::kStart, 0, {{"message", "2 workers"}});
  add(EventKind::kResume, 0, {{"checkpoint", ""}});
  add(EventKind::kStep, 1, {{"loss", 3}, {"samples_per_s", 10}, {"learning_rate", 0.1}, {"forward_s", 1}});
  add(EventKind::kStep, 2, {{"loss", 2}, {"samples_per_s", 20}, {"learning_rate", 0.1}, {"forward_s", 3}});
  add(EventKind::kEval, 2, {{"loss", 2.5}});
  add(EventKind::kCheckpoint, 2, {{"path", "c"}, {"bytes", 1024}, {"seconds", 0.5}});
  add(EventKind::kCheckpoint, 3, {{"path", "d"}, {"bytes", std::nan("")}});
  add(EventKind::kStop, 2, {{"reason", "SIGTERM"}});
  RunReport report;
  add_events(report, history);
  EXPECT_EQ(report.training_loss, (RunReport::Points{{1, 3}, {2, 2}}));
  EXPECT_EQ(report.held_out_loss, (RunReport::Points{{2, 2.5}}));
  EXPECT_EQ(report.speed_unit, "samples");
  // The first step of a process also finds its memory.
  EXPECT_EQ(report.speed, (RunReport::Points{{2, 20}}));
  ASSERT_EQ(report.step_parts.size(), 1u);
  EXPECT_EQ(report.step_parts[0], (std::pair<std::string, double>("forward", 3)));
  ASSERT_EQ(report.checkpoints.size(), 2u);
  EXPECT_EQ(report.checkpoints[0].num_bytes, 1024u);
  EXPECT_EQ(report.checkpoints[1].num_bytes, std::nullopt);
  ASSERT_EQ(report.incidents.size(), 2u);
  EXPECT_EQ(report.incidents[0].message, "2 workers");
  EXPECT_EQ(report.incidents[1].message, "SIGTERM");
  EXPECT_EQ(report.incidents[1].time, "2026-03-01 12:00:00");
}

TEST(Report, ReplacesTheFile) {
  const TestFolder folder;
  write_report(folder / "report.html", example(3));
  RunReport second;
  second.title = "second";
  write_report(folder / "report.html", second);
  EXPECT_EQ(read_whole_file(folder / "report.html", 1 << 20), to_html(second));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(write_report(folder / "missing/report.html", second), SystemError);
}

}  // namespace
}  // namespace trireme
