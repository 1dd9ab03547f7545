#include "trireme/observe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "trireme/base/units.h"

namespace trireme {
namespace {

using Points = RunReport::Points;

constexpr size_t kMostRows = 200;       // of checkpoints and incidents: a page, not a dump
constexpr size_t kSmoothFrom = 400;     // points; fewer can be told apart by eye
constexpr double kLogScaleRatio = 100;  // a loss that falls so far is flat on a linear axis

struct Part {
  const char* value;
  const char* name;
};
constexpr std::array<Part, 7> kParts = {{{"data_s", "data"},
                                         {"forward_s", "forward"},
                                         {"backward_s", "backward"},
                                         {"stages_s", "other stages"},
                                         {"exposed_comm_s", "exposed communication"},
                                         {"optimizer_s", "optimizer"},
                                         {"other_s", "other"}}};

PlotAxis step_axis(const std::vector<Series>& all) {
  PlotAxis axis;
  axis.label = "step";
  double last = 0;
  for (const Series& series : all) {
    for (const auto& [step, value] : series.points) last = std::max(last, step);
  }
  // Steps are whole: few of them would get ticks in between.
  if (last <= 4) axis.min = 0, axis.max = std::max(2.0, last + 1);
  return axis;
}

/// The mean of a window around each point, of the values that are finite.
Points smoothed(const Points& points) {
  std::vector<double> sums(points.size() + 1);
  std::vector<size_t> counts(points.size() + 1);
  for (size_t i = 0; i < points.size(); ++i) {
    const double value = points[i].second;
    sums[i + 1] = sums[i] + (std::isfinite(value) ? value : 0);
    counts[i + 1] = counts[i] + (std::isfinite(value) ? 1 : 0);
  }
  const size_t half = points.size() / 100;
  Points means;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].second)) {
      means.push_back(points[i]);  // a gap stays a gap
      continue;
    }
    // Narrower at the ends, so that it stays centred and the first and last value are true.
    const size_t reach = std::min({half, i, points.size() - 1 - i});
    const size_t from = i - reach, to = i + reach + 1;
    means.emplace_back(points[i].first, (sums[to] - sums[from]) / static_cast<double>(counts[to] - counts[from]));
  }
  return means;
}

/// One line, or a pale one of each step under a smooth one where there are very many.
void add_curve(Chart& chart, const std::string& name, const Points& points, int color, bool noisy = true) {
  if (points.empty()) return;
  Series series;
  series.name = name;
  series.color = color;
  if (noisy && points.size() >= kSmoothFrom) {
    Series every = series;
    every.points = points;
    every.faint = true;
    every.in_legend = false;
    chart.series.push_back(std::move(every));
    series.points = smoothed(points);
  } else {
    series.points = points;
  }
  chart.series.push_back(std::move(series));
}

size_t num_not_finite(const Points& points) {
  return static_cast<size_t>(
      std::count_if(points.begin(), points.end(), [](const auto& point) { return !std::isfinite(point.second); }));
}

Scale loss_scale(const RunReport& report) {
  double low = INFINITY, high = -INFINITY;
  for (const Points* points : {&report.training_loss, &report.held_out_loss}) {
    for (const auto& [step, loss] : *points) {
      if (!std::isfinite(loss)) continue;
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
  return low > 0 && high / low >= kLogScaleRatio ? Scale::kLog : Scale::kLinear;
}

void add_loss(HtmlPage& page, const RunReport& report) {
  if (report.training_loss.empty() && report.held_out_loss.empty()) return;
  Chart chart;
  chart.title = "Loss";
  chart.y.scale = loss_scale(report);
  if (chart.y.scale == Scale::kLog) chart.subtitle = "logarithmic";
  add_curve(chart, "training", report.training_loss, 0);
  add_curve(chart, "held out", report.held_out_loss, 1);
  if (report.target_loss) {
    double first = INFINITY, last = -INFINITY;
    for (const Series& series : chart.series) {
      for (const auto& [step, value] : series.points) first = std::min(first, step), last = std::max(last, step);
    }
    if (first == last) first = 0, last += 1;
    Series target;
    target.name = fmt::format("target {:.4g}", *report.target_loss);
    target.points = {{first, *report.target_loss}, {last, *report.target_loss}};
    target.dashed = true;
    target.color = 2;
    chart.series.push_back(std::move(target));
  }
  chart.x = step_axis(chart.series);
  page.add_chart(chart);
  const size_t gaps = num_not_finite(report.training_loss) + num_not_finite(report.held_out_loss);
  if (gaps > 0) {
    page.add_paragraph(fmt::format("{} of the losses {} not finite: the gaps in the lines.", format_count(gaps),
                                   gaps == 1 ? "is" : "are"));
  }
}

Chart small_chart(std::string title, const Points& points, int color, bool noisy) {
  Chart chart;
  chart.width = 470;
  chart.height = 300;
  chart.title = std::move(title);
  add_curve(chart, chart.title, points, color, noisy);
  chart.x = step_axis(chart.series);
  chart.y.min = 0;
  return chart;
}

void add_speed_and_rate(HtmlPage& page, const RunReport& report) {
  std::vector<Chart> charts;
  if (!report.speed.empty()) {
    const std::string unit = report.speed_unit.empty() ? "" : fmt::format(" ({}/s)", report.speed_unit);
    charts.push_back(small_chart("Speed" + unit, report.speed, 4, true));
  }
  if (!report.learning_rate.empty()) charts.push_back(small_chart("Learning rate", report.learning_rate, 3, false));
  if (charts.size() == 1) charts[0].width = 880;
  if (!charts.empty()) page.add_charts(charts);
}

void add_parts(HtmlPage& page, const RunReport& report) {
  double sum = 0;
  for (const auto& [name, seconds] : report.step_parts) sum += std::isfinite(seconds) ? std::max(0.0, seconds) : 0;
  if (!(sum > 0)) return;
  page.add_heading("Where the time of a step goes");
  page.add_fractions(report.step_parts);
  Table table({{"part"}, {"mean of a step", Align::kRight}, {"share", Align::kRight}});
  for (const auto& [name, seconds] : report.step_parts) {
    if (!std::isfinite(seconds) || seconds < 0) continue;
    table.add_row({name, format_duration(seconds), fmt::format("{:.1f} %", seconds / sum * 100)});
  }
  table.add_row({"whole step", format_duration(sum), "100 %"});
  page.add_table(table);
}

void add_settings(HtmlPage& page, const RunReport& report) {
  if (report.settings.empty() && report.config.empty()) return;
  page.add_heading("Settings");
  if (!report.settings.empty()) {
    Table table({{"setting", Align::kLeft}, {"value", Align::kLeft}});
    for (const auto& [key, value] : report.settings) table.add_row({key, value});
    page.add_table(table);
  }
  if (!report.config.empty()) page.add_details("the whole config, with defaults", report.config);
}

/// The newest rows, and a word about the others.
template <typename Row, typename ToCells>
void add_newest(HtmlPage& page, Table table, const std::vector<Row>& rows, const ToCells& to_cells) {
  const size_t first = rows.size() > kMostRows ? rows.size() - kMostRows : 0;
  for (size_t i = first; i < rows.size(); ++i) table.add_row(to_cells(rows[i]));
  if (first > 0) {
    page.add_paragraph(
        fmt::format("The last {} of {}; all are in events.jsonl.", kMostRows, format_count(rows.size())));
  }
  page.add_table(table);
}

void add_checkpoints(HtmlPage& page, const RunReport& report) {
  if (report.checkpoints.empty() && report.num_removed_checkpoints == 0) return;
  page.add_heading("Checkpoints");
  Table table({{"step", Align::kRight}, {"folder"}, {"size", Align::kRight}, {"written in", Align::kRight}, {""}});
  add_newest(page, std::move(table), report.checkpoints, [](const RunReport::Checkpoint& row) {
    return std::vector<std::string>{format_count(row.step), row.path, row.num_bytes ? format_bytes(*row.num_bytes) : "",
                                    row.seconds ? format_duration(*row.seconds) : "", row.note};
  });
  if (report.num_removed_checkpoints > 0) {
    page.add_paragraph(
        fmt::format("{} removed since: checkpoint.keep says how many stay.",
                    report.num_removed_checkpoints == 1
                        ? "1 older one was"
                        : fmt::format("{} older ones were", format_count(report.num_removed_checkpoints))));
  }
}

void add_incidents(HtmlPage& page, const RunReport& report) {
  if (report.incidents.empty()) return;
  page.add_heading("Events");
  Table table({{"time (UTC)", Align::kLeft}, {"step", Align::kRight}, {"what"}, {"message", Align::kLeft}});
  add_newest(page, std::move(table), report.incidents, [](const RunReport::Incident& row) {
    return std::vector<std::string>{row.time, format_count(row.step), row.kind, row.message};
  });
}

/// "2026-03-01 12:00:00" of "2026-03-01T12:00:00.250Z".
std::string readable_time(std::string time) {
  if (time.size() == 24 && time[10] == 'T') {
    time[10] = ' ';
    time.resize(19);
  }
  return time;
}

std::string message_of(const Event& event) {
  for (const char* name : {"message", "reason", "checkpoint"}) {
    if (std::string text = event.text(name); !text.empty()) return text;
  }
  return {};
}

/// Without the first step of each process, where that leaves any.
EventHistory without_first_steps(const EventHistory& history) {
  EventHistory rest;
  bool is_first = false;
  for (const Event& event : history.events) {
    if (event.kind == EventKind::kStart) is_first = true;
    if (event.kind != EventKind::kStep) continue;
    if (!std::exchange(is_first, false)) rest.events.push_back(event);
  }
  return rest.events.empty() ? history : rest;
}

}  // namespace

void add_events(RunReport& report, const EventHistory& history) {
  const EventHistory steady = without_first_steps(history);
  const auto take = [](Points& points, const EventHistory& from, EventKind kind, const char* name) {
    Points found = from.series(kind, name);
    if (found.empty()) return false;
    points = std::move(found);
    return true;
  };
  take(report.training_loss, history, EventKind::kStep, "loss");
  take(report.held_out_loss, history, EventKind::kEval, "loss");
  take(report.learning_rate, history, EventKind::kStep, "learning_rate");
  if (take(report.speed, steady, EventKind::kStep, "tokens_per_s")) {
    report.speed_unit = "tok";
  } else if (take(report.speed, steady, EventKind::kStep, "samples_per_s")) {
    report.speed_unit = "samples";
  }
  std::vector<std::pair<std::string, double>> parts;
  for (const Part& part : kParts) {
    const Points points = steady.series(EventKind::kStep, part.value);
    double sum = 0;
    for (const auto& [step, seconds] : points) sum += seconds;
    if (!points.empty()) parts.emplace_back(part.name, sum / static_cast<double>(points.size()));
  }
  if (!parts.empty()) report.step_parts = std::move(parts);

  for (const Event& event : history.events) {
    if (event.kind == EventKind::kCheckpoint) {
      RunReport::Checkpoint row{event.step, event.text("path"), {}, event.number("seconds"), event.text("note")};
      const double num_bytes = event.number("bytes").value_or(-1);
      if (num_bytes >= 0 && num_bytes < 0x1p63) row.num_bytes = static_cast<uint64_t>(num_bytes);
      report.checkpoints.push_back(std::move(row));
    } else if (event.kind == EventKind::kResume && message_of(event).empty()) {
      continue;  // older versions began every log with one
    } else if (event.kind != EventKind::kStep && event.kind != EventKind::kEval) {
      report.incidents.push_back(
          {readable_time(event.time), event.step, std::string(to_string(event.kind)), message_of(event)});
    }
  }
}

std::string to_html(const RunReport& report) {
  HtmlPage page(report.title.empty() ? "Run" : report.title);
  if (!report.verdict.empty() || !report.summary.empty()) page.add_verdict(report.verdict, report.tone, report.summary);
  if (!report.facts.empty()) page.add_facts(report.facts);
  add_loss(page, report);
  add_speed_and_rate(page, report);
  add_parts(page, report);
  add_settings(page, report);
  add_checkpoints(page, report);
  add_incidents(page, report);
  return page.to_html();
}

void write_report(const std::filesystem::path& path, const RunReport& report) { replace_file(path, to_html(report)); }

}  // namespace trireme
