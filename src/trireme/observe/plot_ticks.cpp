#include "trireme/observe/plot_ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/units.h"

namespace trireme {
namespace {

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0";
  // On an axis "100 s" reads better than "1:40".
  return std::fabs(seconds) >= 59.95 && std::fabs(seconds) < 1e15 ? format_count(std::llround(seconds)) + " s"
                                                                  : format_duration(seconds);
}

std::string format_number(double value) {
  const double size = std::fabs(value);
  if (size >= 1e6 && size < 1e15) return format_short_count(value);
  if (size >= 1000 && size < 1e6) return format_count(std::llround(value));
  if (size != 0 && (size < 1e-4 || size >= 1e15)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

/// 1, 2 or 5 times a power of ten; for bytes a power of two.
double nice_step(double rough, Quantity quantity) {
  if (quantity == Quantity::kBytes) return std::max(1.0, std::exp2(std::ceil(std::log2(rough))));
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<Tick> linear_ticks(double low, double high, Quantity quantity, int wanted) {
  std::vector<Tick> ticks;
  const double step = nice_step((high - low) / wanted, quantity);
  if (!std::isfinite(step) || step <= 0) return ticks;
  // By whole multiples: adding up steps would gather errors, and 0 would not be 0.
  const double slack = 1e-9 * (high - low);
  for (double k = std::ceil((low - slack) / step); k * step <= high + slack && ticks.size() < 100; ++k) {
    const double value = k * step + 0.0;  // never -0
    ticks.push_back({value, format_quantity(value, quantity)});
  }
  return ticks;
}

std::vector<Tick> binary_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const int first = static_cast<int>(std::ceil(std::log2(low) - 1e-9)),
            last = static_cast<int>(std::floor(std::log2(high) + 1e-9));
  int step = 1;
  while ((last - first) / step + 1 > wanted)
    step = step == 1 ? 2 : step == 2 ? 4 : step + (step % 10 == 0 ? 10 : 10 - step % 10);
  for (int power = first; power <= last; ++power) {
    const bool labelled = (power - first) % step == 0;
    const double value = std::exp2(power);
    ticks.push_back({value, labelled ? format_quantity(value, Quantity::kBytes) : ""});
  }
  return ticks;
}

std::vector<Tick> decimal_ticks(double low, double high, Quantity quantity, int wanted) {
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
      ticks.push_back({value, labelled ? format_quantity(value, quantity) : ""});
    }
  }
  // Less than a decade may hold no such value: then straight ticks do.
  const auto num_labels =
      std::count_if(ticks.begin(), ticks.end(), [](const Tick& tick) { return !tick.label.empty(); });
  return num_labels < 2 ? linear_ticks(low, high, quantity, wanted) : ticks;
}

}  // namespace

std::string format_quantity(double value, Quantity quantity) {
  switch (quantity) {
    case Quantity::kBytes:
      return value >= 0 && value < 1.8e19 ? format_bytes(static_cast<uint64_t>(std::llround(std::min(value, 9e18))))
                                          : format_number(value);
    case Quantity::kSeconds:
      return format_seconds(value);
    case Quantity::kMicroseconds:
      return format_seconds(value / 1e6);
    case Quantity::kBytesPerSecond:
      return format_byte_rate(value);
    case Quantity::kPercent:
      return fmt::format("{:.4g} %", 100 * value);
    case Quantity::kNumber:
      break;
  }
  return format_number(value);
}

std::vector<Tick> choose_ticks(double low, double high, Scale scale, Quantity quantity, int wanted) {
  if (scale == Scale::kLinear) return linear_ticks(low, high, quantity, wanted);
  if (quantity == Quantity::kBytes && high >= 2 * low) return binary_ticks(low, high, wanted);
  return decimal_ticks(low, high, quantity, wanted);
}

}  // namespace trireme
