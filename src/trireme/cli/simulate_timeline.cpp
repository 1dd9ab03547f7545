// The timeline of a simulation: as a picture, as a page, and for trace viewers.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/cli/simulate_memory_chart.h"
#include "trireme/cli/simulate_report.h"
#include "trireme/observe/table.h"
#include "trireme/program/draw.h"
#include "trireme/simulate/memory_over_time.h"

namespace trireme::cli {
namespace {

std::string headline(const Simulation& s) {
  return fmt::format("{} on {} x {}: step {:.4g} s, {:.1f} % of the pipeline's time idle", s.job.layout.schedule_name(),
                     s.job.layout.num_devices(), s.cluster.device.name, s.step_seconds, 100 * s.bubble_fraction);
}

Timeline timeline_of(const Simulation& s) {
  Timeline timeline;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    const PlayedRank& played = s.ranks[rank].played;
    RankTimeline own;
    own.spans = played.spans;
    own.busy_ms = played.busy * 1e3;
    timeline.makespan_ms = std::max(timeline.makespan_ms, played.end * 1e3);
    timeline.cost_ms = std::max(timeline.cost_ms, (played.last - played.first) * 1e3);
    timeline.ideal_ms = std::max(timeline.ideal_ms, played.busy * 1e3);
    timeline.ranks.push_back(std::move(own));
  }
  timeline.bubble_rate = s.bubble_fraction;
  return timeline;
}

/// Collectives, updates and memory; and which part of the picture is the step: that of the rank that takes longest.
SvgExtras extras_of(const Simulation& s) {
  SvgExtras extras;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    const PlayedRank& played = s.ranks[rank].played;
    if (played.end - played.first > (extras.step_to_ms - extras.step_from_ms) / 1e3) {
      extras.step_from_ms = played.first * 1e3;
      extras.step_to_ms = played.end * 1e3;
    }
    RankExtras own;
    for (const CommSpan& span : played.comms) {
      own.beside.push_back({span.instruction, span.start * 1e3, span.end * 1e3, 0});
    }
    for (const MemoryPoint& point : memory_over_time(s, rank)) {
      own.held.push_back({point.seconds * 1e3, point.memory.activations / 1e9});
    }
    extras.ranks.push_back(std::move(own));
  }
  return extras;
}

}  // namespace

std::string simulation_svg(const Simulation& simulation) {
  return draw_svg(timeline_of(simulation), simulation.programs, headline(simulation), extras_of(simulation));
}

std::string simulation_html(const Simulation& simulation, const SimulateReportOptions& options) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>:root{{color-scheme:light dark}}body{{font:15px system-ui,sans-serif;margin:2em auto;max-width:1160px;"
      "padding:0 1em}}svg{{max-width:100%;height:auto}}pre{{overflow-x:auto}}</style></head>\n<body>\n{1}\n{2}\n"
      "<pre>{3}</pre>\n</body></html>\n",
      escape_html(headline(simulation)), simulation_svg(simulation), memory_chart(simulation),
      escape_html(simulation_text(simulation, {.tokens = options.tokens, .memory = true})));
}

std::string simulation_trace(const Simulation& simulation) {
  Json events = Json::array();
  const auto add = [&](size_t rank, int stream, const Instruction& what, double start, double seconds) {
    events.push_back({{"name", what.to_string()},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", stream},
                      {"ts", start * 1e6},
                      {"dur", seconds * 1e6}});
  };
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    for (const int stream : {0, 1}) {
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", rank},
                        {"tid", stream},
                        {"args", {{"name", stream == 0 ? "computing" : "communication and update"}}}});
    }
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"args", {{"name", fmt::format("pipeline rank {}", rank)}}}});
    const PlayedRank& played = simulation.ranks[rank].played;
    for (const Span& span : played.spans) {
      add(rank, 0, span.instruction, span.start_ms / 1e3, (span.end_ms - span.start_ms) / 1e3);
    }
    for (const MemoryPoint& point : memory_over_time(simulation, rank)) {
      const RankMemory& m = point.memory;
      events.push_back({{"name", "memory"},
                        {"ph", "C"},
                        {"pid", rank},
                        {"ts", point.seconds * 1e6},
                        {"args",
                         {{"weights", m.weights},
                          {"gradients", m.gradients},
                          {"optimizer", m.optimizer},
                          {"buffers", m.buffers},
                          {"activations", m.activations}}}});
    }
    for (const CommSpan& span : played.comms) add(rank, 1, span.instruction, span.start, span.end - span.start);
  }
  return Json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace trireme::cli
