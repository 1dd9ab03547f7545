#include "trireme/observe/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostConfigBytes = uint64_t{1} << 24;

/// What the newest process has said of itself, and of its end where it has ended.
struct LastProcess {
  const Event* start = nullptr;
  const Event* end = nullptr;  ///< kStop or kEnd
};

LastProcess last_process(const EventHistory& history) {
  LastProcess last;
  for (const Event& event : history.events) {
    if (event.kind == EventKind::kStart) last = {&event, nullptr};
    if (event.kind == EventKind::kStop || event.kind == EventKind::kEnd) last.end = &event;
  }
  return last;
}

RunState state_of(const LastProcess& last, const RunPaths& run) {
  if (last.end != nullptr && last.end->number("failed").value_or(0) != 0) return RunState::kFailed;
  if (last.end != nullptr) return last.end->kind == EventKind::kEnd ? RunState::kFinished : RunState::kStopped;
  return is_in_use(run) ? RunState::kRunning : RunState::kEnded;
}

/// The last one that counts: a resume takes back what came after its checkpoint.
int64_t step_of(const EventHistory& history) {
  int64_t step = 0;
  for (const Event& event : history.events) {
    step = event.kind == EventKind::kResume ? event.step : std::max(step, event.step);
  }
  return step;
}

double median_of(const RunReport::Points& points) {
  std::vector<double> values;
  for (const auto& [step, value] : points) values.push_back(value);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Those that are still there; older ones were removed when newer ones came.
void drop_removed_checkpoints(RunReport& report, const RunPaths& run) {
  const auto is_gone = [&](const RunReport::Checkpoint& row) {
    std::error_code ignored;
    return !fs::exists(run.checkpoints() / fs::path(row.path).filename(), ignored);
  };
  const size_t before = report.checkpoints.size();
  std::erase_if(report.checkpoints, is_gone);
  report.num_removed_checkpoints = before - report.checkpoints.size();
  for (RunReport::Checkpoint& row : report.checkpoints) row.path = fs::path(row.path).filename().string();
}

void add_verdict(RunStory& story, const LastProcess& last) {
  RunReport& report = story.report;
  switch (story.state) {
    case RunState::kRunning:
      report.verdict = "Running.";
      return;
    case RunState::kStopped:
      report.verdict = "Stopped.";
      return;
    case RunState::kFailed:
      report.verdict = "Failed.";
      report.tone = Tone::kBad;
      return;
    case RunState::kEnded:
      report.verdict = "Ended without a word.";
      report.tone = Tone::kBad;
      return;
    case RunState::kFinished:
      break;
  }
  const double target = last.start != nullptr ? last.start->number("target_loss").value_or(0) : 0;
  if (!(target > 0) || !story.held_out_loss) return;
  const bool reached = *story.held_out_loss <= target;
  report.target_loss = target;
  report.verdict = reached ? "Learnt it." : "Missed the target.";
  report.tone = reached ? Tone::kGood : Tone::kBad;
}

std::string summary_of(const RunStory& story, const LastProcess& last) {
  const bool has_more = story.steps_wanted > story.step;
  std::string text = has_more ? fmt::format("{} of {}", format_count(story.step), counted(story.steps_wanted, "step"))
                              : counted(story.step, "step");
  if (last.start != nullptr) {
    if (const auto units = last.start->number("units_per_step")) {
      text += fmt::format(" of {} {}", format_count(static_cast<int64_t>(*units)), last.start->text("unit"));
    }
    if (const auto workers = last.start->number("workers"))
      text += " on " + counted(static_cast<int64_t>(*workers), "worker");
  }
  if (story.num_parts > 1) text += fmt::format(", in {} parts", story.num_parts);
  if (story.held_out_loss) {
    text += fmt::format("; held-out loss {:.4f}", *story.held_out_loss);
    const int64_t at = static_cast<int64_t>(story.report.held_out_loss.back().first);
    if (at != story.step) text += fmt::format(" after step {}", format_count(at));
  }
  return text + ".";
}

void add_facts(RunStory& story, const LastProcess& last) {
  RunReport& report = story.report;
  if (story.held_out_loss) report.facts.emplace_back("held-out loss", fmt::format("{:.3f}", *story.held_out_loss));
  if (const double speed = median_of(report.speed); speed > 0)
    report.facts.emplace_back("speed", format_rate(speed, report.speed_unit));
  if (last.start != nullptr) {
    if (const auto parameters = last.start->number("parameters"))
      report.facts.emplace_back("parameters", format_short_count(*parameters));
  }
  report.facts.emplace_back("time", format_duration(story.seconds));
}

}  // namespace

std::string_view to_string(RunState state) {
  static constexpr std::string_view kNames[] = {"finished", "stopped", "failed", "running", "ended"};
  return kNames[static_cast<size_t>(state)];
}

RunStory story_of_run(const RunPaths& run) {
  std::error_code ignored;
  if (!fs::exists(run.events(), ignored)) {
    const bool is_folder = fs::is_directory(run.folder, ignored);
    throw UsageError(is_folder ? fmt::format("{} is no run folder: it has no events.jsonl", run.folder.string())
                               : fmt::format("there is no folder {}", run.folder.string()),
                     "name the folder of a run, such as runs/default-1");
  }
  const EventHistory history = read_events(run.events());
  const LastProcess last = last_process(history);
  RunStory story;
  RunReport& report = story.report;
  report.title = fs::weakly_canonical(run.folder).filename().string();
  if (fs::exists(run.config(), ignored)) report.config = read_whole_file(run.config(), kMostConfigBytes);
  add_events(report, history);
  drop_removed_checkpoints(report, run);

  story.state = state_of(last, run);
  story.step = step_of(history);
  if (!report.training_loss.empty()) story.training_loss = report.training_loss.back().second;
  if (!report.held_out_loss.empty()) story.held_out_loss = report.held_out_loss.back().second;
  story.seconds = history.seconds;
  story.num_parts = history.num_processes;
  if (last.start != nullptr) {
    story.steps_wanted = static_cast<int64_t>(last.start->number("steps").value_or(0));
    for (const char* name : {"model", "data", "layout", "precision", "optimizer"}) {
      if (std::string text = last.start->text(name); !text.empty()) report.settings.emplace_back(name, std::move(text));
    }
  }
  if (last.end != nullptr) {
    if (std::string text = last.end->text("predicted"); !text.empty())
      report.settings.emplace_back("predicted", std::move(text));
  }
  add_verdict(story, last);
  report.summary = summary_of(story, last);
  add_facts(story, last);
  return story;
}

}  // namespace trireme
