#include "trireme/observe/draw/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "trireme/observe/style.h"

namespace trireme {
namespace {

constexpr double kLetterWidth = 6.6;  // of the 12 px font, on average, rounded up
constexpr double kLegendRow = 20;
constexpr size_t kMostMarkers = 48;

/// Maps the values of one axis to pixels.
class AxisMap {
 public:
  AxisMap(Scale scale, double low, double high, double from, double to)
      : log_(scale == Scale::kLog), low_(scaled(low)), high_(scaled(high)), from_(from), to_(to) {}
  double operator()(double value) const { return from_ + (scaled(value) - low_) / (high_ - low_) * (to_ - from_); }

 private:
  double scaled(double value) const { return log_ ? std::log10(value) : value; }
  bool log_;
  double low_, high_, from_, to_;
};

bool can_draw(double value, const PlotAxis& axis) {
  return std::isfinite(value) && (axis.scale == Scale::kLinear || value > 0);
}

struct Range {
  double low, high;
};

/// The values of all points that can be drawn, with a margin, or what the axis asks for.
Range range_of(const Chart& chart, bool is_x) {
  const PlotAxis& axis = is_x ? chart.x : chart.y;
  const bool log = axis.scale == Scale::kLog;
  double low = INFINITY, high = -INFINITY;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!can_draw(x, chart.x) || !can_draw(y, chart.y)) continue;
      low = std::min(low, is_x ? x : y);
      high = std::max(high, is_x ? x : y);
    }
  }
  if (low > high) low = high = 1;
  if (log) {
    const double margin = is_x ? 0.02 : 0.05;
    double a = std::log10(low), b = std::log10(high);
    if (b - a < 0.05) a -= 0.3, b += 0.3;
    low = std::pow(10, a - margin * (b - a));
    high = std::pow(10, b + margin * (b - a));
  } else {
    if (low == high) low -= low == 0 ? 1 : std::fabs(low) / 2, high += high == 0 ? 1 : std::fabs(high) / 2;
    const double margin = (is_x ? 0.02 : 0.06) * (high - low);
    // Near enough to 0, an axis starts there.
    low = low >= 0 && low < 0.4 * high ? 0 : low - margin;
    high += margin;
  }
  if (axis.min && can_draw(*axis.min, axis)) low = *axis.min;
  if (axis.max && can_draw(*axis.max, axis)) high = *axis.max;
  if (!(low < high)) high = log ? low * 10 : low + 1;
  return {low, high};
}

double text_width(std::string_view text) { return kLetterWidth * display_width(text); }

bool has_markers(const Series& series) {
  return !series.dashed && !series.faint && series.points.size() <= kMostMarkers;
}

std::string line_classes(const Series& series, int colour) {
  const char* kind = series.faint ? " tr-faint" : series.dashed ? " tr-dash" : has_markers(series) ? "" : " tr-thin";
  return fmt::format("tr-line tr-c{}{}", colour, kind);
}

struct Pixel {
  double x, y;
  std::pair<double, double> point;
};

/// A run of points without a gap. Where points are denser than pixels, the lowest and the highest of each column.
std::string path_of(std::span<const Pixel> run) {
  std::string path;
  const auto line_to = [&](const Pixel& pixel) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", pixel.x, pixel.y);
  };
  for (auto first = run.begin(); first != run.end();) {
    const auto end = std::find_if(first, run.end(), [&](const Pixel& p) { return std::fabs(p.x - first->x) >= 0.5; });
    const auto [low, high] = std::minmax_element(first, end, [](const Pixel& a, const Pixel& b) { return a.y < b.y; });
    line_to(*std::min(low, high));
    if (low != high) line_to(*std::max(low, high));
    first = end;
  }
  // A lone point: a line of no length shows as a dot under round caps.
  return run.size() == 1 ? path + "h0" : path;
}

/// The series in pixels, cut at its gaps.
std::vector<std::vector<Pixel>> runs_of(const Chart& chart, const Series& series, const AxisMap& map_x,
                                        const AxisMap& map_y) {
  std::vector<std::vector<Pixel>> runs(1);
  for (const auto& [x, y] : series.points) {
    if (can_draw(x, chart.x) && can_draw(y, chart.y)) {
      runs.back().push_back({map_x(x), map_y(y), {x, y}});
    } else if (!runs.back().empty()) {
      runs.emplace_back();
    }
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

void draw_series(Svg& svg, const Series& series, int colour, const std::vector<std::vector<Pixel>>& runs) {
  size_t num_points = 0, index = 0;
  for (const auto& run : runs) {
    svg.path(path_of(run), line_classes(series, colour));
    num_points += run.size();
  }
  if (series.faint) return;
  // Of very many points some stand for all under the mouse.
  const size_t stride = std::max<size_t>(1, num_points / 200);
  for (const auto& run : runs) {
    for (const Pixel& pixel : run) {
      if (index++ % stride != 0) continue;
      const auto [x, y] = pixel.point;
      svg.group("", fmt::format("{}\n{}: {}", series.name, format_number(x), format_number(y)), [&] {
        if (has_markers(series)) svg.circle(pixel.x, pixel.y, 4, fmt::format("tr-dot tr-c{}", colour));
        svg.circle(pixel.x, pixel.y, 9, "tr-hit");
      });
    }
  }
}

}  // namespace

std::string to_svg(const Chart& chart) {
  std::vector<int> colours;
  int next = 0;
  double legend_width = 0;
  for (const Series& series : chart.series) {
    colours.push_back((series.color >= 0 ? series.color : next++) % kNumColours);
    if (series.in_legend) legend_width = std::max(legend_width, text_width(series.name) + 44);
  }
  // One solid line needs no legend: the title names it.
  const bool has_legend = std::count_if(chart.series.begin(), chart.series.end(),
                                        [](const Series& series) { return series.in_legend; }) > 1;
  legend_width = has_legend ? std::min(legend_width, chart.width * 0.4) : 0;

  const Range range_x = range_of(chart, true), range_y = range_of(chart, false);
  const double below = chart.x.label.empty() ? 32 : 52;
  const double top =
      (chart.title.empty() ? 14 : 40) + (chart.subtitle.empty() ? 0 : 18) + (chart.y.label.empty() ? 0 : 28);
  const double bottom = std::max<double>(chart.height, top + 120) - below;
  const int wanted_y = std::clamp(static_cast<int>((bottom - top) / 48), 2, 10);
  const auto ticks_y = choose_ticks(range_y.low, range_y.high, chart.y.scale, wanted_y);
  double left = 24;
  for (const Tick& tick : ticks_y) left = std::max(left, text_width(tick.label) + 24);
  const double right = std::max<double>(chart.width - 20 - legend_width, left + 80);
  const int wanted_x = std::clamp(static_cast<int>((right - left) / 58), 2, 12);
  const AxisMap map_x(chart.x.scale, range_x.low, range_x.high, left, right);
  const AxisMap map_y(chart.y.scale, range_y.low, range_y.high, bottom, top);

  Svg svg(static_cast<int>(right + 20 + legend_width), static_cast<int>(bottom + below), chart.title);
  if (!chart.title.empty()) svg.text(20, 28, "tr-title", chart.title);
  if (!chart.subtitle.empty()) svg.text(20, chart.title.empty() ? 20 : 46, "tr-soft", chart.subtitle);
  if (!chart.y.label.empty()) svg.text(20, top - 12, "tr-soft", chart.y.label);
  if (!chart.x.label.empty()) svg.text((left + right) / 2, bottom + below - 14, "tr-soft tr-mid", chart.x.label);
  for (const Tick& tick : choose_ticks(range_x.low, range_x.high, chart.x.scale, wanted_x)) {
    svg.line(map_x(tick.value), top, map_x(tick.value), bottom, "tr-grid");
    svg.text(map_x(tick.value), bottom + 19, "tr-mid", tick.label);
  }
  for (const Tick& tick : ticks_y) {
    svg.line(left, map_y(tick.value), right, map_y(tick.value), "tr-grid");
    svg.text(left - 9, map_y(tick.value) + 4, "tr-end", tick.label);
  }
  svg.line(left, bottom, right, bottom, "tr-axis");

  bool any = false;
  constexpr double kEdge = 6;  // markers on the edge stay whole
  svg.clipped(left - kEdge, top - kEdge, right - left + 2 * kEdge, bottom - top + 2 * kEdge, [&] {
    // Predictions under measurements, and what is faint under all.
    const auto layer_of = [](const Series& series) { return series.faint ? 0 : series.dashed ? 1 : 2; };
    for (const int layer : {0, 1, 2}) {
      for (size_t i = 0; i < chart.series.size(); ++i) {
        const Series& series = chart.series[i];
        if (layer_of(series) != layer) continue;
        const auto runs = runs_of(chart, series, map_x, map_y);
        any = any || !runs.empty();
        svg.group("tr-s", "", [&] { draw_series(svg, series, colours[i], runs); });
      }
    }
  });
  if (!any) svg.text((left + right) / 2, (top + bottom) / 2, "tr-soft tr-mid", "no data");

  double y = top + 6;
  for (size_t i = 0; has_legend && i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (!series.in_legend) continue;
    svg.path(fmt::format("M{:.1f} {:.1f}h22", right + 14, y), line_classes(series, colours[i]));
    if (has_markers(series)) svg.circle(right + 25, y, 4, fmt::format("tr-dot tr-c{}", colours[i]));
    svg.text(right + 44, y + 4, "", series.name);
    y += kLegendRow;
  }
  return svg.finish();
}

}  // namespace trireme
