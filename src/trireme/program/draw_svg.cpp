#include <fmt/format.h>

#include <algorithm>

#include "trireme/observe/draw/svg.h"
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

/// Later stages of the same rank are paler.
double opacity_of(const Instruction& instruction, const Program& program) {
  const std::vector<int> own = program.own_stages();
  const auto number = std::find(own.begin(), own.end(), instruction.stage) - own.begin();
  return own.size() < 2 ? 1 : 1 - 0.55 * static_cast<double>(number) / static_cast<double>(own.size() - 1);
}

/// Each entry lasts until the next computation begins.
std::vector<Held> held_activations(const RankTimeline& rank) {
  std::vector<Held> held;
  for (const Span& span : rank.spans) held.push_back({span.start_ms, span.activations});
  if (!held.empty()) held.push_back({rank.spans.back().end_ms, 0});
  return held;
}

class Picture {
 public:
  Picture(Svg& svg, double end_ms) : svg_(svg), end_ms_(end_ms) {}

  double x(double ms) const { return kLeft + ms * kWidth / end_ms_; }

  void box(const Span& span, double y, double height, double opacity) {
    const auto* look = std::ranges::find(kLooks, span.instruction.op, &Look::op);
    const double width = x(span.end_ms) - x(span.start_ms);
    svg_.box(x(span.start_ms), y, std::max(width - 0.6, 0.4), height, look->colour, opacity,
             fmt::format("{}: {:.6g} to {:.6g} ms", span.instruction.to_string(), span.start_ms, span.end_ms));
    if (height < kLane || width < 13 || span.instruction.micro_batch < 0) return;
    svg_.text(x(span.start_ms) + width / 2, y + kLane / 2 + 4, "tr-mid tr-number",
              std::to_string(span.instruction.micro_batch));
  }

  /// Collectives go below the computations, updates among them.
  void beside(const std::vector<Span>& spans, double y) {
    for (const Span& span : spans) {
      const bool is_update = span.instruction.op == OpCode::kOptimizerStep;
      box(span, is_update ? y : y + kLane + 1, is_update ? kLane : kThin - 2, 1);
    }
  }

  /// A step function, scaled so that `most` fills the lane.
  void memory(const std::vector<Held>& held, double y, double most) {
    if (held.empty()) return;
    const double bottom = y + kMemory;
    std::string path = fmt::format("M{:.2f} {:.1f}", x(held.front().from_ms), bottom);
    for (size_t i = 0; i < held.size(); ++i) {
      const double height = held[i].amount / most * (kMemory - 2);
      const double next = i + 1 < held.size() ? held[i + 1].from_ms : end_ms_;
      path += fmt::format("V{:.2f}H{:.2f}", bottom - height, x(next));
    }
    svg_.path(path + fmt::format("V{:.1f}Z", bottom), "tr-area");
  }

  /// A line from start to end of the step, with end marks.
  void step_mark(double from_ms, double to_ms, double y) {
    const double from = x(from_ms), to = x(to_ms), middle = (from + to) / 2, half = 60;
    svg_.line(from, y - 4, middle - half, y - 4, "tr-axis");
    svg_.line(middle + half, y - 4, to, y - 4, "tr-axis");
    for (const double end : {from, to}) svg_.line(end, y - 9, end, y + 1, "tr-axis");
    svg_.text(middle, y, "tr-mid", fmt::format("step {:.4g} ms", to_ms - from_ms));
  }

  void ticks(double bottom) {
    for (const Tick& tick : choose_ticks(0, end_ms_, Scale::kLinear, 8)) {
      svg_.line(x(tick.value), kTop - 4, x(tick.value), bottom, "tr-grid");
      svg_.text(x(tick.value), bottom + 16, "tr-mid tr-tick", tick.label + (tick.value == 0 ? " ms" : ""));
    }
  }

  void legend(const std::vector<OpCode>& used, bool has_memory) {
    double at = kLeft;
    const auto entry = [&](const char* name, const auto& draw_box) {
      draw_box();
      svg_.text(at + 16, 44, "", name);
      at += 32 + 7 * static_cast<double>(std::string_view(name).size());
    };
    for (const Look& look : kLooks) {
      if (std::ranges::find(used, look.op) == used.end()) continue;
      entry(look.name, [&] { svg_.box(at, 34, 12, 12, look.colour, 1, ""); });
    }
    if (has_memory) entry("activations held", [&] { svg_.path(fmt::format("M{} 34h12v12h-12z", at), "tr-area"); });
  }

 private:
  Svg& svg_;
  double end_ms_;
};

}  // namespace

std::string draw_svg(const Timeline& timeline, const std::vector<Program>& programs, std::string_view title,
                     const SvgExtras& extras) {
  const bool has_extras = !extras.ranks.empty();
  std::vector<OpCode> used;
  std::vector<std::vector<Held>> held;
  std::vector<double> peaks;
  double most = has_extras ? 1e-9 : 1;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Span& span : timeline.ranks[rank].spans) used.push_back(span.instruction.op);
    if (has_extras) {
      for (const Span& span : extras.ranks[rank].beside) used.push_back(span.instruction.op);
    }
    held.push_back(has_extras ? extras.ranks[rank].held : held_activations(timeline.ranks[rank]));
    peaks.push_back(has_extras ? 0 : timeline.ranks[rank].peak.activations);
    for (const Held& point : held.back()) peaks.back() = std::max(peaks.back(), point.amount);
    most = std::max(most, peaks.back());
  }
  // A measured timeline has no activations.
  const bool has_memory = std::ranges::any_of(peaks, [](double peak) { return peak > 0; });
  const double lanes = kLane + (has_extras ? kThin : 0), row = lanes + (has_memory ? kMemory : 0) + kGap;
  const double bottom = kTop + row * static_cast<double>(programs.size());
  Svg svg(static_cast<int>(kLeft + kWidth + kRight + (has_extras ? kUnit : 0)),
          static_cast<int>(bottom) + (has_extras ? 50 : 34), title);
  Picture picture(svg, timeline.makespan_ms > 0 ? timeline.makespan_ms : 1);
  svg.text(kLeft, 20, "tr-title", title);
  picture.legend(used, has_memory);
  picture.ticks(bottom);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const double y = kTop + row * static_cast<double>(rank);
    svg.text(8, y + kLane / 2 + 4, "", fmt::format("rank {}", rank));
    for (const Span& span : timeline.ranks[rank].spans) {
      picture.box(span, y, kLane, opacity_of(span.instruction, programs[rank]));
    }
    if (has_extras) picture.beside(extras.ranks[rank].beside, y);
    if (!has_memory) continue;
    picture.memory(held[rank], y + lanes + 1, most);
    svg.text(kLeft + kWidth + 8, y + lanes + kMemory - 2, "",
             fmt::format("peak {:.3g}{}", peaks[rank], has_extras ? " GB" : ""));
  }
  if (has_extras) picture.step_mark(extras.step_from_ms, extras.step_to_ms, bottom + 36);
  return svg.finish();
}

}  // namespace trireme
