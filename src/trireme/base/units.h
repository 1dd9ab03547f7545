// Bytes, durations, counts and rates: from what people write, and to what people read.
//
// Parsing ignores case and spaces around and inside. It throws UsageError that names the text and what was expected.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

inline constexpr double kGiga = 1e9, kTera = 1e12;
/// The time of what does not happen, in seconds or any other unit.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// "100", "100B", "4KiB", "64 MiB", "1.5GB". K, M, G, T alone are binary (4K = 4KiB); KB, MB, GB, TB are decimal.
uint64_t parse_bytes(std::string_view text);
/// One or several of "4KiB", "4KiB:64MiB" (steps of a factor of 4, both ends included), "4KiB:64MiB:x2".
std::vector<uint64_t> parse_bytes_list(std::string_view text);

/// "1500" or "1,500"; a whole number that is not negative.
uint64_t parse_count(std::string_view text);
/// One or several of "8", "2:16" (steps of a factor of 2, both ends included), "1:64:x4". Here a comma separates.
std::vector<uint64_t> parse_count_list(std::string_view text);

/// "250us", "1.5 ms", "2s", "5min", "1.5h", "3:07" (minutes and seconds), "1:00:00". A unit or a colon is needed.
std::chrono::nanoseconds parse_duration(std::string_view text);

/// "100 B", "4 KiB", "1.18 MiB": three digits.
std::string format_bytes(uint64_t num_bytes);
/// Decimal, as memories of devices are sold: GB, or MB where the largest of the numbers to be shown is below 1 GB.
struct ByteUnit {
  std::string_view name;
  double bytes = 1;
};
ByteUnit unit_of_bytes(double largest);
/// "84.4 GB" with so many decimals; below 1 GB three digits: "12.3 MB".
std::string format_gigabytes(double num_bytes, int decimals = 1);
/// "12.3 GB/s": decimal, as networks and memories are sold.
std::string format_byte_rate(double bytes_per_second);
/// "4,980".
std::string format_count(int64_t count);
/// "1 device", "4,980 devices": `noun` is that of one.
std::string counted(int64_t count, std::string_view noun);
/// "950", "1.2M", "70B": three digits; for parameters and tokens.
std::string format_short_count(double count);
/// "4,980 tok/s", "3.2 steps/s": `unit` is what is counted.
std::string format_rate(double per_second, std::string_view unit);
/// Three digits: "12 ns", "1.5 ms", "48 s", then "3:07", "1:02:03", "2 d 3 h".
std::string format_duration(double seconds);
std::string format_duration(std::chrono::nanoseconds time);
/// "48 s left", "3:07 left": whole seconds.
std::string format_time_left(double seconds);

}  // namespace trireme
