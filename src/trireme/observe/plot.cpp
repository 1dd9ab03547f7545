#include "trireme/observe/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "trireme/base/text.h"
#include "trireme/observe/plot_ticks.h"
#include "trireme/observe/style.h"

namespace trireme {
namespace {

constexpr int kNumColors = 8, kNumMarkers = 5;
constexpr double kLetterWidth = 6.6;  // of the 12 px font, on average, rounded up
constexpr double kLegendRow = 20;
constexpr size_t kMostMarkers = 48;

// Colours that differ in hue and lightness, for both backgrounds. Classes, not CSS variables: converters know them.
constexpr std::string_view kSvgStyle = R"css(<style>
.tr-bg{fill:#fff}.tr-text{fill:#24292f;font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif}
.tr-soft{fill:#606a75}.tr-title{font-size:15px;font-weight:600}.tr-end{text-anchor:end}.tr-mid{text-anchor:middle}
.tr-grid{stroke:#e1e5ea;stroke-width:1}.tr-minor{stroke:#f1f3f5;stroke-width:1}.tr-axis{stroke:#8c959f;stroke-width:1}
.tr-line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.tr-dash{stroke-dasharray:2 5;stroke-width:1.8}.tr-thin{stroke-width:1.3}.tr-faint{stroke-width:1;stroke-opacity:.35}
.tr-dot{stroke-width:1.2}.tr-hit{fill:transparent;stroke:none}.tr-s:hover .tr-line{stroke-width:3.2}
.tr-l0{stroke:#2463d4}.tr-f0{fill:#2463d4}.tr-l1{stroke:#d9480f}.tr-f1{fill:#d9480f}
.tr-l2{stroke:#2b8a3e}.tr-f2{fill:#2b8a3e}.tr-l3{stroke:#9c36b5}.tr-f3{fill:#9c36b5}
.tr-l4{stroke:#0b7f95}.tr-f4{fill:#0b7f95}.tr-l5{stroke:#c2255c}.tr-f5{fill:#c2255c}
.tr-l6{stroke:#8a6500}.tr-f6{fill:#8a6500}.tr-l7{stroke:#495057}.tr-f7{fill:#495057}
.tr-dot{stroke:#fff}
@media (prefers-color-scheme:dark){
.tr-bg{fill:#16191e}.tr-text{fill:#e6e9ed}.tr-soft{fill:#9aa4af}.tr-grid{stroke:#2c3138}.tr-minor{stroke:#21252b}.tr-axis{stroke:#6b747e}
.tr-l0{stroke:#7aadff}.tr-f0{fill:#7aadff}.tr-l1{stroke:#ff9c5b}.tr-f1{fill:#ff9c5b}
.tr-l2{stroke:#6bd57e}.tr-f2{fill:#6bd57e}.tr-l3{stroke:#dc8bf2}.tr-f3{fill:#dc8bf2}
.tr-l4{stroke:#45cbdd}.tr-f4{fill:#45cbdd}.tr-l5{stroke:#ff8fb1}.tr-f5{fill:#ff8fb1}
.tr-l6{stroke:#dfb94f}.tr-f6{fill:#dfb94f}.tr-l7{stroke:#b4bcc5}.tr-f7{fill:#b4bcc5}
.tr-dot{stroke:#16191e}
}
</style>
)css";

/// Maps values of one axis to pixels.
class Map {
 public:
  Map(const PlotAxis& axis, double low, double high, double from, double to)
      : log_(axis.scale == Scale::kLog), low_(scaled(low)), high_(scaled(high)), from_(from), to_(to) {}
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
    const double size = high - low;
    // Near enough to 0, an axis starts there.
    const bool from_zero = low >= 0 && low < 0.4 * high;
    low = from_zero ? 0 : low - (is_x ? 0.02 : 0.06) * size;
    high += (is_x ? 0.02 : 0.06) * size;
  }
  if (axis.min && can_draw(*axis.min, axis)) low = *axis.min;
  if (axis.max && can_draw(*axis.max, axis)) high = *axis.max;
  if (!(low < high)) high = log ? low * 10 : low + 1;
  return {low, high};
}

double text_width(std::string_view text) { return kLetterWidth * display_width(text); }

std::string text_at(double x, double y, std::string_view classes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tr-text {}\">{}</text>\n", x, y, classes,
                     escape_html(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                     classes);
}

std::string marker_at(double x, double y, int marker, int color) {
  const char* shape = "";
  switch (marker % kNumMarkers) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"tr-dot tr-f{}\"/>", x, y, color);
    case 1:
      shape = "m-3.6-3.6h7.2v7.2h-7.2z";
      break;
    case 2:
      shape = "m0-4.8 4.6 8h-9.2z";
      break;
    case 3:
      shape = "m0-5 5 5-5 5-5-5z";
      break;
    default:
      shape = "m0 4.8 4.6-8h-9.2z";
  }
  return fmt::format("<path d=\"M{:.1f} {:.1f}{}\" class=\"tr-dot tr-f{}\"/>", x, y, shape, color);
}

bool has_markers(const Series& series) {
  return !series.dashed && !series.faint && series.points.size() <= kMostMarkers;
}

std::string_view line_class(const Series& series) {
  return series.faint ? " tr-faint" : series.dashed ? " tr-dash" : has_markers(series) ? "" : " tr-thin";
}

struct Pixel {
  double x, y;
  std::pair<double, double> point;
};

/// A run of points without a gap. Where points are denser than pixels, the lowest and the highest of each column.
std::string path_of(const std::vector<Pixel>& run) {
  std::vector<const Pixel*> kept;
  for (size_t i = 0; i < run.size();) {
    size_t end = i + 1, low = i, high = i;
    while (end < run.size() && std::fabs(run[end].x - run[i].x) < 0.5) {
      if (run[end].y < run[low].y) low = end;
      if (run[end].y > run[high].y) high = end;
      ++end;
    }
    if (end - i <= 2) {
      for (size_t j = i; j < end; ++j) kept.push_back(&run[j]);
    } else {
      kept.push_back(&run[std::min(low, high)]);
      if (low != high) kept.push_back(&run[std::max(low, high)]);
    }
    i = end;
  }
  std::string path;
  for (const Pixel* pixel : kept) path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", pixel->x, pixel->y);
  // A lone point: a line of no length shows as a dot under round caps.
  if (kept.size() == 1) path += "h0";
  return path;
}

std::string draw_series(const Chart& chart, const Series& series, int color, int marker, const Map& map_x,
                        const Map& map_y) {
  std::vector<std::vector<Pixel>> runs(1);
  size_t num_points = 0;
  for (const auto& [x, y] : series.points) {
    if (!can_draw(x, chart.x) || !can_draw(y, chart.y)) {
      if (!runs.back().empty()) runs.emplace_back();
      continue;
    }
    ++num_points;
    runs.back().push_back({map_x(x), map_y(y), {x, y}});
  }
  std::string out = "<g class=\"tr-s\">";
  for (const auto& run : runs) {
    if (run.empty()) continue;
    out += fmt::format("<path d=\"{}\" class=\"tr-line tr-l{}{}\"/>", path_of(run), color, line_class(series));
  }
  if (series.faint) return out + "</g>\n";
  // Of very many points some stand for all under the mouse.
  const size_t stride = std::max<size_t>(1, num_points / 200);
  size_t index = 0;
  for (const auto& run : runs) {
    for (const Pixel& pixel : run) {
      if (index++ % stride != 0) continue;
      out += "\n<g>";
      if (has_markers(series)) out += marker_at(pixel.x, pixel.y, marker, color);
      const std::string tip =
          fmt::format("{}\n{}: {}", series.name, format_number(pixel.point.first), format_number(pixel.point.second));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"9\" class=\"tr-hit\"/><title>{}</title></g>", pixel.x,
                         pixel.y, escape_html(tip));
    }
  }
  return out + "</g>\n";
}

}  // namespace

std::string to_svg(const Chart& chart) {
  std::vector<int> colors, markers;
  int next = 0;
  double legend_width = 0;
  size_t num_in_legend = 0;
  for (const Series& series : chart.series) {
    const int number = series.color >= 0 ? series.color : next++;
    colors.push_back(number % kNumColors);
    markers.push_back(number % kNumColors + number / kNumColors);  // a colour that comes again has another marker
    if (!series.in_legend) continue;
    ++num_in_legend;
    legend_width = std::max(legend_width, text_width(series.name) + 44);
  }
  // One solid line needs no legend: the title names it.
  const bool has_legend = num_in_legend > 1;
  if (!has_legend) legend_width = 0;
  legend_width = std::min(legend_width, chart.width * 0.4);

  const Range range_x = range_of(chart, true), range_y = range_of(chart, false);
  const double top =
      (chart.title.empty() ? 14 : 40) + (chart.subtitle.empty() ? 0 : 18) + (chart.y.label.empty() ? 0 : 28);
  const double bottom = std::max<double>(chart.height, top + 120) - (chart.x.label.empty() ? 32 : 52);
  const int height = static_cast<int>(bottom + (chart.x.label.empty() ? 32 : 52));
  const int wanted_y = std::clamp(static_cast<int>((bottom - top) / 48), 2, 10);
  const auto ticks_y = choose_ticks(range_y.low, range_y.high, chart.y.scale, wanted_y);
  double left = 24;
  for (const Tick& tick : ticks_y) left = std::max(left, text_width(tick.label) + 24);
  const double right = std::max<double>(chart.width - 20 - legend_width, left + 80);
  const int width = std::max(chart.width, static_cast<int>(right + 20 + legend_width));
  const int wanted_x = std::clamp(static_cast<int>((right - left) / 58), 2, 12);
  const auto ticks_x = choose_ticks(range_x.low, range_x.high, chart.x.scale, wanted_x);
  const Map map_x(chart.x, range_x.low, range_x.high, left, right);
  const Map map_y(chart.y, range_y.low, range_y.high, bottom, top);

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-label=\"{2}\">\n",
      width, height, escape_html(chart.title));
  out += kSvgStyle;
  out += fmt::format("<rect width=\"{}\" height=\"{}\" class=\"tr-bg\"/>\n", width, height);
  if (!chart.title.empty()) out += text_at(20, 28, "tr-title", chart.title);
  if (!chart.subtitle.empty()) out += text_at(20, chart.title.empty() ? 20 : 46, "tr-soft", chart.subtitle);
  if (!chart.y.label.empty()) out += text_at(20, top - 12, "tr-soft", chart.y.label);
  if (!chart.x.label.empty()) out += text_at((left + right) / 2, height - 14, "tr-soft tr-mid", chart.x.label);

  // Minor lines first, under everything.
  for (const bool minor : {true, false}) {
    for (const Tick& tick : ticks_x) {
      if (tick.label.empty() != minor) continue;
      const double x = map_x(tick.value);
      out += line_at(x, top, x, bottom, minor ? "tr-minor" : "tr-grid");
      if (!minor) out += text_at(x, bottom + 19, "tr-mid", tick.label);
    }
    for (const Tick& tick : ticks_y) {
      if (tick.label.empty() != minor) continue;
      const double y = map_y(tick.value);
      out += line_at(left, y, right, y, minor ? "tr-minor" : "tr-grid");
      if (!minor) out += text_at(left - 9, y + 4, "tr-end", tick.label);
    }
  }
  out += line_at(left, bottom, right, bottom, "tr-axis");

  // An inner <svg> hides what lies outside the limits that were asked for; markers on the edge stay whole.
  constexpr double kEdge = 6;
  out += fmt::format(
      "<svg x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"{3:.1f}\" viewBox=\"{0:.1f} {1:.1f} {2:.1f} "
      "{3:.1f}\">\n",
      left - kEdge, top - kEdge, right - left + 2 * kEdge, bottom - top + 2 * kEdge);
  bool any = false;
  // Predictions under measurements, and what is faint under all.
  const auto layer_of = [](const Series& series) { return series.faint ? 0 : series.dashed ? 1 : 2; };
  for (const int layer : {0, 1, 2}) {
    for (size_t i = 0; i < chart.series.size(); ++i) {
      const Series& series = chart.series[i];
      if (layer_of(series) != layer) continue;
      out += draw_series(chart, series, colors[i], markers[i], map_x, map_y);
      any = any || std::any_of(series.points.begin(), series.points.end(), [&](const auto& point) {
              return can_draw(point.first, chart.x) && can_draw(point.second, chart.y);
            });
    }
  }
  out += "</svg>\n";
  if (!any) out += text_at((left + right) / 2, (top + bottom) / 2, "tr-soft tr-mid", "no data");

  double y = top + 6;
  for (size_t i = 0; has_legend && i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (!series.in_legend) continue;
    const double x = right + 14;
    out +=
        fmt::format("<path d=\"M{:.1f} {:.1f}h22\" class=\"tr-line tr-l{}{}\"/>", x, y, colors[i], line_class(series));
    if (has_markers(series)) out += marker_at(x + 11, y, markers[i], colors[i]);
    out += text_at(x + 30, y + 4, "", series.name);
    y += kLegendRow;
  }
  return out + "</svg>\n";
}

}  // namespace trireme
