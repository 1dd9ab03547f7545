#include "trireme/observe/draw/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/units.h"
#include "trireme/observe/table.h"

namespace trireme {
namespace {

/// 1, 2 or 5 times a power of ten.
double nice_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<Tick> linear_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double step = nice_step((high - low) / wanted);
  if (!std::isfinite(step) || step <= 0) return ticks;
  // By whole multiples: adding up steps would gather errors, and 0 would not be 0.
  const double slack = 1e-9 * (high - low);
  for (double k = std::ceil((low - slack) / step); k * step <= high + slack && ticks.size() < 100; ++k) {
    const double value = k * step + 0.0;  // never -0
    ticks.push_back({value, format_number(value)});
  }
  return ticks;
}

std::vector<Tick> decimal_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double decades = std::log10(high / low);
  const int step = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high * (1 + 1e-9); ++power) {
    for (const int digit : {1, 2, 5}) {
      const double value = digit * std::pow(10, power);
      const bool is_inside = value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
      if (is_inside && (digit == 1 ? power % step == 0 : decades < 2)) ticks.push_back({value, format_number(value)});
    }
  }
  // Less than a decade may hold no such value: then straight ticks do.
  return ticks.size() < 2 ? linear_ticks(low, high, wanted) : ticks;
}

}  // namespace

// Colours that differ in hue and lightness, for both backgrounds. Classes, not CSS variables: converters know them.
const std::string_view kPictureStyle = R"css(<style>
.tr-bg{fill:#fff}.tr-text{fill:#24292f;font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif}
.tr-soft{fill:#606a75}.tr-title{font-size:15px;font-weight:600}.tr-end{text-anchor:end}.tr-mid{text-anchor:middle}.tr-number{fill:#111;font-size:10px}
.tr-grid{stroke:#e1e5ea}.tr-axis{stroke:#8c959f}.tr-area{fill:#9aa5b1}
.tr-line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.tr-dash{stroke-dasharray:2 5;stroke-width:1.8}.tr-thin{stroke-width:1.3}.tr-faint{stroke-width:1;stroke-opacity:.35}
.tr-dot{fill:currentColor;stroke:#fff;stroke-width:1.2}.tr-hit{fill:transparent}.tr-s:hover .tr-line{stroke-width:3.2}
.tr-c0{color:#2463d4}.tr-c1{color:#d9480f}.tr-c2{color:#2b8a3e}.tr-c3{color:#9c36b5}.tr-c4{color:#0b7f95}.tr-c5{color:#c2255c}.tr-c6{color:#8a6500}.tr-c7{color:#495057}
@media (prefers-color-scheme:dark){
.tr-bg{fill:#16191e}.tr-text{fill:#e6e9ed}.tr-soft{fill:#9aa4af}.tr-number{fill:#111}.tr-grid{stroke:#2c3138}.tr-axis{stroke:#6b747e}.tr-area{fill:#5d6772}.tr-dot{stroke:#16191e}
.tr-c0{color:#7aadff}.tr-c1{color:#ff9c5b}.tr-c2{color:#6bd57e}.tr-c3{color:#dc8bf2}.tr-c4{color:#45cbdd}.tr-c5{color:#ff8fb1}.tr-c6{color:#dfb94f}.tr-c7{color:#b4bcc5}
}
</style>
)css";

Svg::Svg(int width, int height, std::string_view name)
    : out_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
                       "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n{3}"
                       "<rect width=\"{0}\" height=\"{1}\" class=\"tr-bg\"/>\n",
                       width, height, escape_html(name), kPictureStyle)) {}

void Svg::text(double x, double y, std::string_view classes, std::string_view text) {
  out_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tr-text {}\">{}</text>\n", x, y, classes, escape_html(text));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                      classes);
}

void Svg::path(std::string_view path, std::string_view classes) {
  out_ += fmt::format("<path d=\"{}\" class=\"{}\"/>", path, classes);
}

void Svg::circle(double x, double y, double radius, std::string_view classes) {
  out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"{}\"/>", x, y, radius, classes);
}

void Svg::box(double x, double y, double width, double height, std::string_view fill, double opacity,
              std::string_view tip) {
  out_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"", x, y, width,
                      height, fill);
  if (opacity < 1) out_ += fmt::format(" opacity=\"{:.2f}\"", opacity);
  out_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape_html(tip));
}

void Svg::begin_group(std::string_view classes, std::string_view tip) {
  out_ += fmt::format("<g class=\"{}\">", classes);
  if (!tip.empty()) out_ += fmt::format("<title>{}</title>", escape_html(tip));
}

void Svg::begin_clip(double x, double y, double width, double height) {
  out_ += fmt::format(
      "<svg x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"{3:.1f}\" viewBox=\"{0:.1f} {1:.1f} {2:.1f} "
      "{3:.1f}\">\n",
      x, y, width, height);
}

std::vector<Tick> choose_ticks(double low, double high, Scale scale, int wanted) {
  return scale == Scale::kLinear ? linear_ticks(low, high, wanted) : decimal_ticks(low, high, wanted);
}

std::string format_number(double value) {
  const double size = std::fabs(value);
  if (size >= 1e6 && size < 1e15) return format_short_count(value);
  if (size >= 1000 && size < 1e6) return format_count(std::llround(value));
  if (size != 0 && (size < 1e-4 || size >= 1e15)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

}  // namespace trireme
