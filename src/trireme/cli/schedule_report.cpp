#include "trireme/cli/schedule_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"
#include "trireme/program/draw.h"
#include "trireme/program/pipeline.h"

namespace trireme::cli {
namespace {

std::string number(double value) { return fmt::format("{:.6g}", value); }

Emphasis colour_of(OpCode op) {
  switch (op) {
    case OpCode::kForward:
      return Emphasis::kCyan;
    case OpCode::kWeightGrad:
      return Emphasis::kGreen;
    case OpCode::kRecompute:
      return Emphasis::kDim;
    default:
      return Emphasis::kYellow;
  }
}

bool recomputes(const CheckedSchedule& checked) {
  return std::any_of(checked.report.ranks.begin(), checked.report.ranks.end(),
                     [](const PeakMemory& peak) { return peak.inputs > 0; });
}

bool is_asynchronous(const CheckedSchedule& checked) { return checked.programs[0].num_updates > 1; }

Table table_of(const CheckedSchedule& checked) {
  std::vector<Column> columns = {"rank", "stages", "busy ms", "idle", "activations"};
  if (recomputes(checked)) columns.emplace_back("inputs kept");
  if (is_asynchronous(checked)) columns.insert(columns.end(), {"weight versions", "staleness"});
  Table table(columns);
  for (size_t rank = 0; rank < checked.programs.size(); ++rank) {
    const RankTimeline& own = checked.timeline.ranks[rank];
    const double span = own.spans.empty() ? 0 : own.spans.back().end_ms - own.spans.front().start_ms;
    std::vector<std::string> stages;
    int staleness = 0;
    for (const int stage : checked.programs[rank].own_stages()) {
      stages.push_back(std::to_string(stage));
      staleness = std::max(staleness, checked.report.staleness[static_cast<size_t>(stage)]);
    }
    std::vector<std::string> cells = {std::to_string(rank), join(stages, " "), number(own.busy_ms),
                                      fmt::format("{:.1f} %", span > 0 ? 100 * (span - own.busy_ms) / span : 0),
                                      fmt::format("{:.3g}", own.peak.activations)};
    if (recomputes(checked)) cells.push_back(fmt::format("{:.3g}", own.peak.inputs));
    if (is_asynchronous(checked)) {
      cells.push_back(std::to_string(own.peak.weight_versions));
      cells.push_back(std::to_string(staleness));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

template <typename Get>
Json each_rank(const CheckedSchedule& checked, const Get& get) {
  Json list = Json::array();
  for (const RankTimeline& rank : checked.timeline.ranks) list.push_back(get(rank));
  return list;
}

}  // namespace

CheckedSchedule check_schedule(std::string name, Schedule schedule, const StageTimes& times, bool recompute,
                               const CheckOptions& options) {
  CheckedSchedule checked{.name = std::move(name),
                          .schedule = std::move(schedule),
                          .times = {},
                          .programs = {},
                          .report = {},
                          .timeline = {}};
  checked.times = spread_over_stages(times, checked.schedule.rank_of_stage);
  checked.programs = lower_pipeline_ranks({.schedule = checked.schedule, .recompute = {recompute}});
  checked.report = check_programs(checked.programs, checked.schedule.micro_batches_in_update(), options);
  checked.timeline = make_timeline(checked.programs, checked.times);
  return checked;
}

std::string headline(const CheckedSchedule& checked) {
  const Schedule& schedule = checked.schedule;
  const auto counted = [](int count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string shape = counted(schedule.num_stages(), "stage");
  if (schedule.num_stages() != schedule.num_ranks) shape += fmt::format(" on {}", counted(schedule.num_ranks, "rank"));
  return fmt::format(
      "{}: {}, {}: makespan {} ms, bubble {:.1f} %", checked.name, shape,
      schedule.num_micro_batches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", schedule.num_micro_batches),
      number(checked.timeline.makespan_ms), 100 * checked.timeline.bubble_rate);
}

std::string terminal_report(const CheckedSchedule& checked) {
  const bool colour = has_colour(STDOUT_FILENO);
  const auto paint = [colour](std::string_view text, const OpCode* op) {
    return emphasised(text, op == nullptr ? Emphasis::kDim : colour_of(*op), colour);
  };
  return headline(checked) + "\n\n" +
         draw_text(checked.timeline, checked.programs, {.width = terminal_width(STDOUT_FILENO), .paint = paint}) +
         "\n" + table_of(checked).to_text({.bold_header = colour});
}

std::string json_report(const CheckedSchedule& checked) {
  const Timeline& timeline = checked.timeline;
  const Json json = {
      {"kind", checked.name},
      {"ranks", checked.schedule.num_ranks},
      {"stages", checked.schedule.num_stages()},
      {"microbatches", checked.schedule.num_micro_batches},
      {"rank_of_stage", checked.schedule.rank_of_stage},
      {"makespan_ms", timeline.makespan_ms},
      {"cost_ms", timeline.cost_ms},
      {"ideal_ms", timeline.ideal_ms},
      {"bubble_rate", timeline.bubble_rate},
      {"peak_activations", each_rank(checked, [](const RankTimeline& rank) { return rank.peak.activations; })},
      {"peak_inputs", each_rank(checked, [](const RankTimeline& rank) { return rank.peak.inputs; })},
      {"weight_versions", each_rank(checked, [](const RankTimeline& rank) { return rank.peak.weight_versions; })},
      {"receive_buffers", each_rank(checked, [](const RankTimeline& rank) { return rank.peak.receive_buffers; })},
      {"busy_ms", each_rank(checked, [](const RankTimeline& rank) { return rank.busy_ms; })},
      {"staleness", checked.report.staleness},
      {"updates", checked.programs[0].num_updates},
  };
  return json.dump(2);
}

std::string svg_report(const CheckedSchedule& checked) {
  return draw_svg(checked.timeline, checked.programs, headline(checked));
}

std::string html_report(const CheckedSchedule& checked) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>:root{{color-scheme:light dark}}body{{font:15px system-ui,sans-serif;margin:2em auto;max-width:1160px;"
      "padding:0 1em}}svg{{max-width:100%;height:auto}}td,th{{padding:.2em .9em;text-align:right}}"
      "table{{border-collapse:collapse}}th{{border-bottom:1px solid}}</style></head>\n<body>\n{1}\n{2}\n"
      "<p>Busy is the time of computations; idle, the share of the rank's time from its first to its last one; "
      "activations, the most micro-batches whose activations it holds at once. The bubble rate is "
      "(cost − m(T_F + T_B + T_W)) / cost = ({3} − {4}) / {3}.</p>\n</body></html>\n",
      escape_html(checked.name), svg_report(checked), table_of(checked).to_html(), number(checked.timeline.cost_ms),
      number(checked.timeline.ideal_ms));
}

}  // namespace trireme::cli
