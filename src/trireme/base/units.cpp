#include "trireme/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi, kPi = kTi * kKi;
constexpr std::array kByteUnits = {
    Unit{"", 1},      Unit{"b", 1},     Unit{"k", kKi}, Unit{"kib", kKi}, Unit{"kb", 1e3}, Unit{"m", kMi},
    Unit{"mib", kMi}, Unit{"mb", 1e6},  Unit{"g", kGi}, Unit{"gib", kGi}, Unit{"gb", 1e9}, Unit{"t", kTi},
    Unit{"tib", kTi}, Unit{"tb", 1e12}, Unit{"p", kPi}, Unit{"pib", kPi}, Unit{"pb", 1e15}};
constexpr std::array kTimeUnits = {Unit{"ns", 1},     Unit{"us", 1e3},   Unit{"µs", 1e3},    Unit{"μs", 1e3},
                                   Unit{"ms", 1e6},   Unit{"s", 1e9},    Unit{"sec", 1e9},   Unit{"m", 60e9},
                                   Unit{"min", 60e9}, Unit{"h", 3600e9}, Unit{"d", 86'400e9}};

constexpr std::string_view kBytesExpected = "expected bytes such as 100, 4KiB, 64MiB or 1.5GB";
constexpr std::string_view kCountExpected = "expected a whole number such as 8 or 1,500";
constexpr std::string_view kTimeExpected = "expected a duration such as 250us, 1.5ms, 30s, 5min or 3:07";

[[noreturn]] void fail(std::string_view text, std::string_view problem, std::string_view expected) {
  throw UsageError(fmt::format("\"{}\" {}", text, problem), std::string(expected));
}

std::optional<double> factor_of(std::span<const Unit> units, std::string_view name) {
  const std::string lower = to_lower(name);
  for (const Unit& unit : units) {
    if (unit.name == lower) return unit.factor;
  }
  return std::nullopt;
}

/// A number, then a unit; the product, rounded, at most `limit`.
uint64_t parse_with_unit(std::string_view text, std::span<const Unit> units, uint64_t limit, std::string_view thing,
                         std::string_view expected) {
  const std::string_view body = trim(text);
  const size_t digits = std::min(body.find_first_not_of("0123456789."), body.size());
  const std::string_view number = body.substr(0, digits);
  const std::optional<double> factor = factor_of(units, trim(body.substr(digits)));
  const char* const end = number.data() + number.size();
  if (!number.empty() && factor) {
    uint64_t whole = 0, product = 0;
    const auto [whole_end, whole_error] = std::from_chars(number.data(), end, whole);
    if (whole_end == end) {
      if (whole_error == std::errc::result_out_of_range ||
          __builtin_mul_overflow(whole, static_cast<uint64_t>(*factor), &product) || product > limit) {
        fail(text, "is too large", expected);
      }
      return product;
    }
    double value = 0;
    const auto [value_end, value_error] = std::from_chars(number.data(), end, value, std::chars_format::fixed);
    if (value_end == end && value_error != std::errc::invalid_argument) {
      value = std::round(value * *factor);
      if (value_error == std::errc::result_out_of_range || value >= static_cast<double>(limit)) {
        fail(text, "is too large", expected);
      }
      return static_cast<uint64_t>(value);
    }
  }
  fail(text, fmt::format("is not {}", thing), expected);
}

/// Items between commas, each "a", "a:b" or "a:b:xF".
std::vector<uint64_t> parse_list(std::string_view text, uint64_t default_factor,
                                 const std::function<uint64_t(std::string_view)>& parse, std::string_view expected) {
  constexpr size_t kMaxItems = 10'000;
  std::vector<uint64_t> items;
  for (const std::string_view item : split(text, ',')) {
    const auto parts = split(item, ':');
    if (parts.empty() || parts.size() > 3) fail(text, "is not a list or a range", expected);
    const uint64_t first = parse(parts[0]);
    items.push_back(first);
    if (parts.size() == 1) continue;
    const uint64_t last = parse(parts[1]);
    uint64_t factor = default_factor;
    if (parts.size() == 3) {
      if (parts[2].empty() || (parts[2][0] != 'x' && parts[2][0] != 'X')) {
        fail(text, "has a bad step", "expected a range such as 4KiB:64MiB:x2");
      }
      factor = parse_count(parts[2].substr(1));
    }
    if (first == 0 || first > last) fail(text, "is not a range that grows", expected);
    if (factor < 2) fail(text, "has a step below x2", expected);
    for (uint64_t value = first; !__builtin_mul_overflow(value, factor, &value) && value < last;) {
      items.push_back(value);
    }
    if (last != first) items.push_back(last);
    if (items.size() > kMaxItems) fail(text, "has too many items", expected);
  }
  if (items.empty()) fail(text, "is an empty list", expected);
  return items;
}

/// Three significant digits without trailing zeros; `value` is below 1000 once rounded.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

/// With the largest of the units, each `step` times the one before, that keeps the number at 1 or above.
std::string scaled(double value, double step, std::span<const std::string_view> units, std::string_view space) {
  size_t unit = 0;
  // Rounding up may reach the next unit: 999,600 is "1M", not "1000K".
  while (unit + 1 < units.size() && std::fabs(value) >= step - 0.5) {
    value /= step;
    ++unit;
  }
  return fmt::format("{}{}{}", three_digits(value), units[unit].empty() ? "" : space, units[unit]);
}

}  // namespace

uint64_t parse_bytes(std::string_view text) {
  return parse_with_unit(text, kByteUnits, std::numeric_limits<uint64_t>::max(), "a number of bytes", kBytesExpected);
}

std::vector<uint64_t> parse_bytes_list(std::string_view text) {
  return parse_list(text, 4, parse_bytes, "expected sizes such as 4KiB,1MiB or a range such as 4KiB:64MiB");
}

uint64_t parse_count(std::string_view text) {
  const auto groups = split(trim(text), ',');
  std::string digits;
  for (size_t i = 0; i < groups.size(); ++i) {
    // A comma stands before three digits, so "2,4" is not 24.
    const size_t size = groups[i].size();
    const bool right_size = groups.size() == 1 || (i == 0 ? size >= 1 && size <= 3 : size == 3);
    if (!right_size) fail(text, "is not a number", kCountExpected);
    digits += groups[i];
  }
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) fail(text, "is not a number", kCountExpected);
  if (error != std::errc{}) fail(text, "is too large", kCountExpected);
  return value;
}

std::vector<uint64_t> parse_count_list(std::string_view text) {
  return parse_list(text, 2, parse_count, "expected counts such as 2,4,8 or a range such as 2:16");
}

std::chrono::nanoseconds parse_duration(std::string_view text) {
  constexpr uint64_t kLimit = std::numeric_limits<int64_t>::max();
  const auto parts = split(trim(text), ':');
  if (parts.size() < 2) {
    if (trim(text) == "0") return {};
    return std::chrono::nanoseconds(parse_with_unit(text, kTimeUnits, kLimit, "a duration", kTimeExpected));
  }
  if (parts.size() > 3) fail(text, "is not a duration", kTimeExpected);
  uint64_t seconds = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    uint64_t part = 0;
    const char* const end = parts[i].data() + parts[i].size();
    const auto [stop, error] = std::from_chars(parts[i].data(), end, part);
    // After the first colon come two digits below 60.
    if (stop != end || error != std::errc{} || (i > 0 && (parts[i].size() != 2 || part >= 60))) {
      fail(text, "is not a duration", kTimeExpected);
    }
    if (__builtin_mul_overflow(seconds, 60, &seconds) || __builtin_add_overflow(seconds, part, &seconds)) {
      fail(text, "is too large", kTimeExpected);
    }
  }
  if (seconds > kLimit / 1'000'000'000) fail(text, "is too large", kTimeExpected);
  return std::chrono::seconds(seconds);
}

std::string format_bytes(uint64_t num_bytes) {
  static constexpr std::array<std::string_view, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(static_cast<double>(num_bytes), 1024, kUnits, " ");
}

ByteUnit unit_of_bytes(double largest) {
  return std::fabs(largest) < 0.9995e9 ? ByteUnit{"MB", 1e6} : ByteUnit{"GB", 1e9};
}

std::string format_gigabytes(double num_bytes, int decimals) {
  static constexpr std::array<std::string_view, 3> kUnits = {"B", "kB", "MB"};
  if (std::fabs(num_bytes) < 0.9995e9) return scaled(num_bytes, 1000, kUnits, " ");
  return fmt::format("{:.{}f} GB", num_bytes / 1e9, decimals);
}

std::string format_flop_rate(double per_second, std::string_view kind) {
  const auto [unit, prefix] = per_second >= 1e12  ? std::pair{1e12, "T"}
                              : per_second >= 1e9 ? std::pair{1e9, "G"}
                                                  : std::pair{1e6, "M"};
  return fmt::format("{:.1f} {}{}{}FLOP/s", per_second / unit, kind, kind.empty() ? "" : " ", prefix);
}

std::string format_count(int64_t count) {
  std::string text = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t end = text.size(); end > first + 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

std::string counted(int64_t count, std::string_view noun) {
  const std::string_view end = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", format_count(count), noun, end);
}

std::string format_short_count(double count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "B", "T"};
  if (!std::isfinite(count)) return "?";
  return scaled(count, 1000, kUnits, "");
}

std::string format_rate(double per_second, std::string_view unit) {
  if (!std::isfinite(per_second) || std::fabs(per_second) >= 9e18) return fmt::format("? {}/s", unit);
  const bool large = std::fabs(per_second) >= 999.5;
  return fmt::format("{} {}/s", large ? format_count(std::llround(per_second)) : three_digits(per_second), unit);
}

std::string format_duration(double seconds) {
  static constexpr std::array<std::string_view, 3> kUnits = {"ns", "µs", "ms"};
  if (!std::isfinite(seconds) || std::fabs(seconds) > 1e15) return "?";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds < 0.9995) return scaled(seconds * 1e9, 1000, kUnits, " ");
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const int64_t whole = std::llround(seconds);
  const int64_t s = whole % 60, m = whole / 60 % 60, h = whole / 3600;
  if (h >= 24) return fmt::format("{} d {} h", h / 24, h % 24);
  if (h > 0) return fmt::format("{}:{:02}:{:02}", h, m, s);
  return fmt::format("{}:{:02}", m, s);
}

std::string format_duration(std::chrono::nanoseconds time) {
  return format_duration(std::chrono::duration<double>(time).count());
}

std::string format_time_left(double seconds) {
  if (seconds < 59.5) return fmt::format("{} s left", std::llround(std::max(seconds, 0.0)));
  return format_duration(std::round(seconds)) + " left";
}

}  // namespace trireme
