// Every form of bytes, counts and durations that the command line takes, and how they print.
#include "trireme/base/units.h"

#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using std::chrono::nanoseconds;
using Numbers = std::vector<uint64_t>;

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Units, ParseBytes) {
  EXPECT_EQ(parse_bytes("100"), 100u);
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("100B"), 100u);
  EXPECT_EQ(parse_bytes("4KiB"), 4096u);
  EXPECT_EQ(parse_bytes(" 4 kib "), 4096u);
  EXPECT_EQ(parse_bytes("4k"), 4096u);
  EXPECT_EQ(parse_bytes("4KB"), 4000u);
  EXPECT_EQ(parse_bytes("64MiB"), 64u << 20);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(parse_bytes("1.5GiB"), 3ull << 29);
  EXPECT_EQ(parse_bytes("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_bytes("16383PiB"), 16383ull << 50);
}

TEST(Units, BadBytesAreNamed) {
  for (const char* text : {"", "KiB", "4XiB", "-1", "1.2.3K", ".", "1e6", "nan", "inf", "4 K B", "0x10", "1,5"}) {
    const std::string error = error_of([&] { parse_bytes(text); });
    EXPECT_NE(error.find("is not a number of bytes"), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find(std::string("\"") + text + "\""), std::string::npos) << error;
  }
  for (const char* text : {"18446744073709551616", "16384PiB", "16384.0PiB", "20000.5PiB"}) {
    EXPECT_NE(error_of([&] { parse_bytes(text); }).find("is too large"), std::string::npos) << text;
  }
}

TEST(Units, BytesList) {
  constexpr uint64_t K = 1024, M = K * K;
  EXPECT_EQ(parse_bytes_list("4KiB:64MiB"), (Numbers{4 * K, 16 * K, 64 * K, 256 * K, M, 4 * M, 16 * M, 64 * M}));
  EXPECT_EQ(parse_bytes_list("4KiB:32KiB"), (Numbers{4 * K, 16 * K, 32 * K}));
  EXPECT_EQ(parse_bytes_list("1K:4K:x2"), (Numbers{K, 2 * K, 4 * K}));
  EXPECT_EQ(parse_bytes_list("4K:4K"), (Numbers{4 * K}));
  EXPECT_EQ(parse_bytes_list("100, 4K:16K ,1M"), (Numbers{100, 4 * K, 16 * K, M}));
  EXPECT_EQ(parse_bytes_list("1:18446744073709551615").size(), 33u);  // ends without overflow
  for (const char* text : {"", ",", "4K,", "4K:", ":4K", "8K:4K", "0:4K", "1:2:3", "1:2:x1", "1:2:x", "1:2:x2:3"}) {
    EXPECT_THROW(parse_bytes_list(text), UsageError) << text;
  }
}

TEST(Units, Counts) {
  EXPECT_EQ(parse_count("1500"), 1500u);
  EXPECT_EQ(parse_count("1,500,000"), 1'500'000u);
  for (const char* text :
       {"", ",", "2,4", "1500,000", ",500", "1,50", "1.5", "-3", "8x", "1,,500", "99999999999999999999"}) {
    EXPECT_THROW(parse_count(text), UsageError) << text;
  }
  EXPECT_EQ(parse_count_list("2,4,8"), (Numbers{2, 4, 8}));
  EXPECT_EQ(parse_count_list("2:16"), (Numbers{2, 4, 8, 16}));
  EXPECT_EQ(parse_count_list("1:64:x4"), (Numbers{1, 4, 16, 64}));
  EXPECT_EQ(parse_count_list("3:8"), (Numbers{3, 6, 8}));
}

TEST(Units, ParseDuration) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_duration("1.5 ms"), 1500us);
  EXPECT_EQ(parse_duration("250us"), 250us);
  EXPECT_EQ(parse_duration("250 µs"), 250us);
  EXPECT_EQ(parse_duration("7ns"), 7ns);
  EXPECT_EQ(parse_duration("30S"), 30s);
  EXPECT_EQ(parse_duration("5min"), 5min);
  EXPECT_EQ(parse_duration("1.5h"), 90min);
  EXPECT_EQ(parse_duration("3:07"), 187s);
  EXPECT_EQ(parse_duration("1:00:01"), 3601s);
  EXPECT_EQ(parse_duration("0"), 0s);
  for (const char* text :
       {"", "5", "-1s", "3:7", "3:60", ":07", "3:", "1:2:3:4", "ms", "1 x", "300000000000s", "9999999999999:00"}) {
    EXPECT_THROW(parse_duration(text), UsageError) << text;
  }
}

TEST(Units, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(100), "100 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1 << 20), "1 MiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_bytes(1'234'567), "1.18 MiB");
  EXPECT_EQ(format_bytes(64u << 20), "64 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "16 EiB");
}

TEST(Units, FormatCountsAndRates) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(4980), "4,980");
  EXPECT_EQ(format_count(-1'234'567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_short_count(950), "950");
  EXPECT_EQ(format_short_count(1.2e6), "1.2M");
  EXPECT_EQ(format_short_count(999'600), "1M");
  EXPECT_EQ(format_short_count(70e9), "70B");
  EXPECT_EQ(format_rate(4980.3, "tok"), "4,980 tok/s");
  EXPECT_EQ(format_rate(3.2, "steps"), "3.2 steps/s");
  EXPECT_EQ(format_rate(999.7, "tok"), "1,000 tok/s");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::infinity(), "tok"), "? tok/s");
  EXPECT_EQ(format_flop_rate(312.44e12), "312.4 TFLOP/s");
  EXPECT_EQ(format_flop_rate(34.1e9), "34.1 GFLOP/s");
  EXPECT_EQ(format_flop_rate(2e6, "model"), "2.0 model MFLOP/s");
}

TEST(Units, FormatMemoryOfDevices) {
  EXPECT_EQ(format_gigabytes(84.36e9), "84.4 GB");
  EXPECT_EQ(format_gigabytes(84.36e9, 2), "84.36 GB");
  EXPECT_EQ(format_gigabytes(0.9996e9), "1.0 GB");
  EXPECT_EQ(format_gigabytes(12.34e6), "12.3 MB");
  EXPECT_EQ(format_gigabytes(0), "0 B");
  EXPECT_EQ(unit_of_bytes(2e9).name, "GB");
  EXPECT_EQ(unit_of_bytes(2e8).name, "MB");
}

TEST(Units, CountsThings) {
  EXPECT_EQ(counted(1, "device"), "1 device");
  EXPECT_EQ(counted(0, "stage"), "0 stages");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(131'072, "device"), "131,072 devices");
}

TEST(Units, FormatDuration) {
  EXPECT_EQ(format_duration(0.0), "0 ns");
  EXPECT_EQ(format_duration(12e-9), "12 ns");
  EXPECT_EQ(format_duration(1.5e-3), "1.5 ms");
  EXPECT_EQ(format_duration(0.0101), "10.1 ms");
  EXPECT_EQ(format_duration(9.996e-6), "10 µs");
  EXPECT_EQ(format_duration(0.9999), "1 s");
  EXPECT_EQ(format_duration(48.0), "48 s");
  EXPECT_EQ(format_duration(59.97), "1:00");
  EXPECT_EQ(format_duration(187.2), "3:07");
  EXPECT_EQ(format_duration(3723.0), "1:02:03");
  EXPECT_EQ(format_duration(51.2 * 3600), "2 d 3 h");
  EXPECT_EQ(format_duration(-0.5), "-500 ms");
  EXPECT_EQ(format_duration(nanoseconds(1500)), "1.5 µs");
  EXPECT_EQ(format_time_left(48.2), "48 s left");
  EXPECT_EQ(format_time_left(187.2), "3:07 left");
  EXPECT_EQ(format_time_left(-1), "0 s left");
  EXPECT_EQ(format_time_left(59.6), "1:00 left");
}

}  // namespace
}  // namespace trireme
