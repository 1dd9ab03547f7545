#include "trireme/observe/plot_ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/units.h"

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
  const int first = static_cast<int>(std::floor(std::log10(low))), last = static_cast<int>(std::ceil(std::log10(high)));
  const int step = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  for (int power = first; power <= last; ++power) {
    for (int digit = 1; digit <= 9; ++digit) {
      const double value = digit * std::pow(10, power);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      const bool labelled = digit == 1 ? power % step == 0 : (digit == 2 || digit == 5) ? decades < 2 : decades < 0.5;
      if (!labelled && digit != 1 && decades > 6) continue;
      ticks.push_back({value, labelled ? format_number(value) : ""});
    }
  }
  // Less than a decade may hold no such value: then straight ticks do.
  const auto num_labels =
      std::count_if(ticks.begin(), ticks.end(), [](const Tick& tick) { return !tick.label.empty(); });
  return num_labels < 2 ? linear_ticks(low, high, wanted) : ticks;
}

}  // namespace

std::string format_number(double value) {
  const double size = std::fabs(value);
  if (size >= 1e6 && size < 1e15) return format_short_count(value);
  if (size >= 1000 && size < 1e6) return format_count(std::llround(value));
  if (size != 0 && (size < 1e-4 || size >= 1e15)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

std::vector<Tick> choose_ticks(double low, double high, Scale scale, int wanted) {
  return scale == Scale::kLinear ? linear_ticks(low, high, wanted) : decimal_ticks(low, high, wanted);
}

}  // namespace trireme
