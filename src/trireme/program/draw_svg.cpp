#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/program/draw.h"

namespace trireme {
namespace {

constexpr double kLeft = 64, kWidth = 960, kRight = 96, kTop = 56, kLane = 26, kMemory = 18, kGap = 8;

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
};

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

std::string legend(const Timeline& timeline) {
  std::string svg;
  double x = kLeft;
  for (const Look& look : kLooks) {
    const bool used = std::any_of(timeline.ranks.begin(), timeline.ranks.end(), [&](const RankTimeline& rank) {
      return std::any_of(rank.spans.begin(), rank.spans.end(),
                         [&](const Span& s) { return s.instruction.op == look.op; });
    });
    if (!used) continue;
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{:.0f}\" y=\"44\">{}</text>\n",
        x, look.colour, x + 16, look.name);
    x += 32 + 7 * static_cast<double>(std::string_view(look.name).size());
  }
  return svg + fmt::format(
                   "<rect class=\"memory\" x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\"/>"
                   "<text x=\"{:.0f}\" y=\"44\">activations held</text>\n",
                   x, x + 16);
}

std::string lane(const RankTimeline& rank, const Program& program, double y, double scale) {
  std::string svg;
  for (const Span& span : rank.spans) {
    const Look* const look =
        std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& l) { return l.op == span.instruction.op; });
    const double x = kLeft + span.start_ms * scale, width = (span.end_ms - span.start_ms) * scale;
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" opacity=\"{:.2f}\">"
        "<title>{}: {:.6g} to {:.6g} ms</title></rect>",
        x, y, std::max(width - 0.6, 0.4), kLane, look->colour, opacity_of(span.instruction, program),
        span.instruction.to_string(), span.start_ms, span.end_ms);
    if (width >= 13) {
      svg += fmt::format("<text class=\"number\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", x + width / 2, y + kLane / 2 + 4,
                         span.instruction.micro_batch);
    }
    svg += "\n";
  }
  return svg;
}

/// Steps, as high as the lane at `most`.
std::string memory(const RankTimeline& rank, double y, double scale, double most, double end) {
  if (rank.spans.empty()) return "";
  const double bottom = y + kMemory;
  std::string path = fmt::format("M{:.2f} {:.1f}", kLeft + rank.spans.front().start_ms * scale, bottom);
  for (size_t i = 0; i < rank.spans.size(); ++i) {
    const double height = rank.spans[i].activations / most * (kMemory - 2);
    const double next = i + 1 < rank.spans.size() ? rank.spans[i + 1].start_ms : rank.spans[i].end_ms;
    path += fmt::format("L{:.2f} {:.2f}L{:.2f} {:.2f}", kLeft + rank.spans[i].start_ms * scale, bottom - height,
                        kLeft + next * scale, bottom - height);
    if (i + 1 == rank.spans.size()) path += fmt::format("L{:.2f} {:.1f}", kLeft + next * scale, bottom);
  }
  return fmt::format("<path class=\"memory\" d=\"{}L{:.2f} {:.1f}Z\"/>\n", path, kLeft + end * scale, bottom);
}

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return safe;
}

}  // namespace

std::string draw_svg(const Timeline& timeline, const std::vector<Program>& programs, std::string_view title) {
  const double end = timeline.makespan_ms > 0 ? timeline.makespan_ms : 1, scale = kWidth / end;
  const double row = kLane + kMemory + kGap;
  const double bottom = kTop + row * static_cast<double>(programs.size());
  double most = 1;
  for (const RankTimeline& rank : timeline.ranks) most = std::max(most, rank.peak.activations);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>text{{fill:#222}}.number{{text-anchor:middle;font-size:10px;fill:#111}}.axis{{stroke:#bbb}}"
      ".memory{{fill:#9aa5b1}}.title{{font-size:15px;font-weight:600}}.tick{{text-anchor:middle}}"
      "@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.axis{{stroke:#555}}.memory{{fill:#5d6772}}}}</style>\n"
      "<text class=\"title\" x=\"{2:.0f}\" y=\"20\">{3}</text>\n",
      kLeft + kWidth + kRight, bottom + 34, kLeft, escape(title));
  svg += legend(timeline);
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
    svg += memory(timeline.ranks[rank], y + kLane + 1, scale, most, end);
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\">peak {:.3g}</text>\n", kLeft + kWidth + 8,
                       y + kLane + kMemory - 2, timeline.ranks[rank].peak.activations);
  }
  return svg + "</svg>\n";
}

}  // namespace trireme
