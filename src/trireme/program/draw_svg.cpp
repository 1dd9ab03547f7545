#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/program/draw.h"

namespace trireme {
namespace {

constexpr double kLeft = 64, kWidth = 960, kRight = 96, kUnit = 20, kTop = 56, kLane = 26, kThin = 9, kMemory = 18,
                 kGap = 8;

struct Look {
  OpCode op;
  const char* name;
  const char* colour;
};

constexpr Look kLooks[] = {
    {OpCode::kForward, "forward", "#5b9bd5"},
    {OpCode::kBackward, "backward", "#f0a540"},
    {OpCode::kBackwardInput, "backward, inputs", "#f3c84b"},
    {OpCode::kWeightGrad, "backward, weights", "#7fbf7b"},
    {OpCode::kRecompute, "recompute", "#b79bd1"},
    {OpCode::kOptimizerStep, "update", "#a0785a"},
    {OpCode::kAllGather, "all-gather", "#3fa7a0"},
    {OpCode::kReduceScatter, "reduce-scatter", "#d0708f"},
    {OpCode::kAllReduce, "all-reduce", "#c8553d"},
};

const Look& look_of(OpCode op) {
  return *std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& look) { return look.op == op; });
}

/// The rank's other stages are paler.
double opacity_of(const Instruction& instruction, const Program& program) {
  const std::vector<int> own = program.own_stages();
  const auto number = std::find(own.begin(), own.end(), instruction.stage) - own.begin();
  return own.size() < 2 ? 1 : 1 - 0.55 * static_cast<double>(number) / static_cast<double>(own.size() - 1);
}

/// 1, 2 or 5 times a power of ten: about eight ticks.
double tick_step(double end) {
  const double rough = end / 8, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string legend(const Timeline& timeline, const SvgExtras& extras, bool has_memory) {
  const auto uses = [](const std::vector<Span>& spans, OpCode op) {
    return std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return span.instruction.op == op; });
  };
  std::string svg;
  double x = kLeft;
  for (const Look& look : kLooks) {
    const bool used = std::any_of(timeline.ranks.begin(), timeline.ranks.end(),
                                  [&](const RankTimeline& rank) { return uses(rank.spans, look.op); }) ||
                      std::any_of(extras.ranks.begin(), extras.ranks.end(),
                                  [&](const RankExtras& rank) { return uses(rank.beside, look.op); });
    if (!used) continue;
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{:.0f}\" y=\"44\">{}</text>\n",
        x, look.colour, x + 16, look.name);
    x += 32 + 7 * static_cast<double>(std::string_view(look.name).size());
  }
  if (!has_memory) return svg;
  return svg + fmt::format(
                   "<rect class=\"memory\" x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\"/>"
                   "<text x=\"{:.0f}\" y=\"44\">activations held</text>\n",
                   x, x + 16);
}

std::string box(const Span& span, double y, double height, double scale, double opacity) {
  const double width = (span.end_ms - span.start_ms) * scale;
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" opacity=\"{:.2f}\">"
      "<title>{}: {:.6g} to {:.6g} ms</title></rect>",
      kLeft + span.start_ms * scale, y, std::max(width - 0.6, 0.4), height, look_of(span.instruction.op).colour,
      opacity, span.instruction.to_string(), span.start_ms, span.end_ms);
}

std::string lane(const RankTimeline& rank, const Program& program, double y, double scale) {
  std::string svg;
  for (const Span& span : rank.spans) {
    const double width = (span.end_ms - span.start_ms) * scale;
    svg += box(span, y, kLane, scale, opacity_of(span.instruction, program));
    if (width >= 13) {
      svg += fmt::format("<text class=\"number\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>",
                         kLeft + span.start_ms * scale + width / 2, y + kLane / 2 + 4, span.instruction.micro_batch);
    }
    svg += "\n";
  }
  return svg;
}

/// Collectives below computations, updates among them.
std::string beside(const std::vector<Span>& spans, double y, double scale) {
  std::string svg;
  for (const Span& span : spans) {
    const bool is_update = span.instruction.op == OpCode::kOptimizerStep;
    svg += box(span, is_update ? y : y + kLane + 1, is_update ? kLane : kThin - 2, scale, 1) + "\n";
  }
  return svg;
}

/// As long as they are held: until the next computation begins.
std::vector<Held> held_activations(const RankTimeline& rank) {
  std::vector<Held> held;
  for (const Span& span : rank.spans) held.push_back({span.start_ms, span.activations});
  if (!held.empty()) held.push_back({rank.spans.back().end_ms, 0});
  return held;
}

/// Steps, as high as the lane at `most`.
std::string memory(const std::vector<Held>& held, double y, double scale, double most, double end) {
  if (held.empty()) return "";
  const double bottom = y + kMemory;
  std::string path = fmt::format("M{:.2f} {:.1f}", kLeft + held.front().from_ms * scale, bottom);
  for (size_t i = 0; i < held.size(); ++i) {
    if (i + 1 == held.size() && held[i].amount == 0) {
      path += fmt::format("L{:.2f} {:.1f}", kLeft + held[i].from_ms * scale, bottom);
      break;
    }
    const double height = held[i].amount / most * (kMemory - 2);
    const double next = i + 1 < held.size() ? held[i + 1].from_ms : end;
    path += fmt::format("L{:.2f} {:.2f}L{:.2f} {:.2f}", kLeft + held[i].from_ms * scale, bottom - height,
                        kLeft + next * scale, bottom - height);
  }
  return fmt::format("<path class=\"memory\" d=\"{}L{:.2f} {:.1f}Z\"/>\n", path, kLeft + end * scale, bottom);
}

/// A line with its ends marked, as long as the step.
std::string step_mark(const SvgExtras& extras, double y, double scale) {
  const double from = kLeft + extras.step_from_ms * scale, to = kLeft + extras.step_to_ms * scale;
  const double middle = (from + to) / 2, half = 60;
  std::string svg = "<style>.step{stroke:#222}@media(prefers-color-scheme:dark){.step{stroke:#ddd}}</style>\n";
  for (const auto& [left, right] : {std::pair{from, middle - half}, {middle + half, to}}) {
    svg += fmt::format("<line class=\"step\" x1=\"{:.2f}\" x2=\"{:.2f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left, right,
                       y - 4, y - 4);
  }
  for (const double x : {from, to}) {
    svg += fmt::format("<line class=\"step\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>", x, y - 9,
                       y + 1);
  }
  return svg + fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{:.1f}\">step {:.4g} ms</text>\n", middle, y,
                           extras.step_to_ms - extras.step_from_ms);
}

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return safe;
}

}  // namespace

std::string draw_svg(const Timeline& timeline, const std::vector<Program>& programs, std::string_view title,
                     const SvgExtras& extras) {
  const double end = timeline.makespan_ms > 0 ? timeline.makespan_ms : 1, scale = kWidth / end;
  const bool has_extras = !extras.ranks.empty();
  std::vector<std::vector<Held>> held;
  std::vector<double> peaks;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    held.push_back(has_extras ? extras.ranks[rank].held : held_activations(timeline.ranks[rank]));
    peaks.push_back(has_extras ? 0 : timeline.ranks[rank].peak.activations);
    for (const Held& point : held.back()) peaks.back() = std::max(peaks.back(), point.amount);
  }
  double most = has_extras ? 1e-9 : 1;
  for (const double peak : peaks) most = std::max(most, peak);
  // A timeline that was measured may not know what was held.
  const bool has_memory = std::any_of(peaks.begin(), peaks.end(), [](double peak) { return peak > 0; });
  const double lanes = kLane + (has_extras ? kThin : 0), row = lanes + (has_memory ? kMemory : 0) + kGap;
  const double bottom = kTop + row * static_cast<double>(programs.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>text{{fill:#222}}.number{{text-anchor:middle;font-size:10px;fill:#111}}.axis{{stroke:#bbb}}"
      ".memory{{fill:#9aa5b1}}.title{{font-size:15px;font-weight:600}}.tick{{text-anchor:middle}}"
      "@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.axis{{stroke:#555}}.memory{{fill:#5d6772}}}}</style>\n"
      "<text class=\"title\" x=\"{2:.0f}\" y=\"20\">{3}</text>\n",
      kLeft + kWidth + kRight + (has_extras ? kUnit : 0), bottom + (has_extras ? 50 : 34), kLeft, escape(title));
  svg += legend(timeline, extras, has_memory);
  const double step = tick_step(end);
  for (int i = 0; i * step <= end * 1.0001; ++i) {
    const double x = kLeft + i * step * scale;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>"
        "<text class=\"tick\" x=\"{0:.2f}\" y=\"{3:.0f}\">{4:.6g}{5}</text>\n",
        x, kTop - 4, bottom, bottom + 16, i * step, i == 0 ? " ms" : "");
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const double y = kTop + row * static_cast<double>(rank);
    svg += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", y + kLane / 2 + 4, rank);
    svg += lane(timeline.ranks[rank], programs[rank], y, scale);
    if (has_extras) svg += beside(extras.ranks[rank].beside, y, scale);
    if (!has_memory) continue;
    svg += memory(held[rank], y + lanes + 1, scale, most, end);
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\">peak {:.3g}{}</text>\n", kLeft + kWidth + 8,
                       y + lanes + kMemory - 2, peaks[rank], has_extras ? " GB" : "");
  }
  if (has_extras) svg += step_mark(extras, bottom + 36, scale);
  return svg + "</svg>\n";
}

}  // namespace trireme
