// Tests that packed blocks have the promised size, round as promised, and are the same bytes from every instruction
// set.
#include "trireme/compress/formats/block_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/comm/reduce/reduce.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/formats/kernels.h"

namespace trireme {
namespace {

constexpr size_t kOddSizes[] = {0, 1, 2, 5, 7, 63, 64, 103, 511, 512, 513, 515, 1023, 1024, 4099};

std::vector<uint8_t> encode(BlockFormat format, const std::vector<float>& values, const RandomKey& random = {},
                            uint64_t first = 0) {
  std::vector<uint8_t> wire(encoded_bytes(format, values.size()));
  encode_blocks(format, values, wire, random, first);
  return wire;
}

std::vector<float> decode(BlockFormat format, const std::vector<uint8_t>& wire, size_t count) {
  std::vector<float> values(count);
  decode_blocks(format, wire, values);
  return values;
}

std::vector<float> round_trip(BlockFormat format, const std::vector<float>& values, const RandomKey& random = {}) {
  return decode(format, encode(format, values, random), values.size());
}

TEST(BlockFormat, HasThePromisedSize) {
  const std::pair<BlockFormat, double> bits[] = {
      {BlockFormat::kInt8, 8},  {BlockFormat::kQsgd8, 8}, {BlockFormat::kQsgd4, 4}, {BlockFormat::kQsgd2, 2},
      {BlockFormat::kQsgd1, 1}, {BlockFormat::kSign, 1},  {BlockFormat::kHalf, 16}};
  for (const auto& [format, payload] : bits) {
    EXPECT_DOUBLE_EQ(bits_per_element(format), payload + 32.0 / 512) << name_of(format);
    EXPECT_EQ(encoded_bytes(format, 5120), static_cast<size_t>(5120 * (payload + 0.0625) / 8)) << name_of(format);
  }
  EXPECT_DOUBLE_EQ(bits_per_element(BlockFormat::kBFloat16), 16);
  EXPECT_DOUBLE_EQ(bits_per_element(BlockFormat::kTernary), 8 * (103 + 4) / 512.0);
  EXPECT_EQ(encoded_bytes(BlockFormat::kQsgd1, 513), 2 * 4 + 64 + 1u);
  EXPECT_EQ(encoded_bytes(BlockFormat::kTernary, 7), 4 + 2u);
  for (size_t i = 0; i < kNumBlockFormats; ++i) EXPECT_EQ(encoded_bytes(format_at(i), 0), 0u);
}

TEST(BlockFormat, EveryInstructionSetGivesTheSameBytes) {
  const RandomKey random = random_key(3, "bytes", 9);
  const auto tables = compress_kernels::available();
  for (size_t i = 0; i < kNumBlockFormats; ++i) {
    for (const size_t count : kOddSizes) {
      std::vector<float> values = test_values(count, i + 1);
      if (count > 600) values[520] = std::numeric_limits<float>::infinity();
      if (count > 2000) std::fill_n(values.begin() + 1024, 512, 0.f);
      std::vector<uint8_t> wire[3];
      std::vector<float> decoded[3], added[3], rest[3];
      for (size_t t = 0; t < tables.size(); ++t) {
        wire[t].resize(encoded_bytes(format_at(i), count));
        rest[t] = values;
        encode_blocks_keeping_rest(*tables[t], format_at(i), rest[t].data(), count, wire[t].data(), random, 1024);
        decoded[t].resize(count);
        decode_blocks(*tables[t], format_at(i), wire[t].data(), count, decoded[t].data(), false);
        added[t] = test_values(count, 99);
        decode_blocks(*tables[t], format_at(i), wire[t].data(), count, added[t].data(), true);
        for (std::vector<float>* all : {&decoded[t], &added[t]}) {
          for (float& value : *all) value = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
        }
        EXPECT_EQ(wire[t], wire[0]) << name_of(format_at(i)) << " " << tables[t]->name << " " << count;
        EXPECT_EQ(bits_of(decoded[t]), bits_of(decoded[0])) << name_of(format_at(i)) << " " << tables[t]->name;
        EXPECT_EQ(bits_of(added[t]), bits_of(added[0])) << name_of(format_at(i)) << " " << tables[t]->name;
        EXPECT_EQ(bits_of(rest[t]), bits_of(rest[0])) << name_of(format_at(i)) << " " << tables[t]->name;
      }
    }
  }
}

TEST(BlockFormat, RoundsToWithinOneLevel) {
  // In levels of the block's largest; to nearest is half of one.
  const std::pair<BlockFormat, double> worst[] = {{BlockFormat::kInt8, 0.5 / 127}, {BlockFormat::kQsgd8, 1.0 / 127},
                                                  {BlockFormat::kQsgd4, 1.0 / 7},  {BlockFormat::kQsgd2, 1},
                                                  {BlockFormat::kTernary, 1},      {BlockFormat::kQsgd1, 2}};
  for (const size_t count : kOddSizes) {
    const std::vector<float> values = test_values(count, 5);
    for (const auto& [format, level] : worst) {
      const std::vector<float> back = round_trip(format, values, random_key(1, "level", 2));
      for (size_t first = 0; first < count; first += kBlockElements) {
        const size_t end = std::min(count, first + kBlockElements);
        double largest = 0;
        for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
        for (size_t i = first; i < end; ++i) {
          ASSERT_LE(std::fabs(back[i] - values[i]), largest * level * 1.00001) << name_of(format) << " " << i;
        }
      }
    }
  }
}

/// The nearest of all values that float16 has, ties to the even code.
float nearest_half(float value) {
  constexpr int kLeast = -14, kMantissaBits = 10;
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = magnitude == 0 ? kLeast : std::max(kLeast, static_cast<int>(std::floor(std::log2(magnitude))));
  const double unit = std::ldexp(1.0, exponent - kMantissaBits);
  return static_cast<float>(std::copysign(std::nearbyint(magnitude / unit) * unit, static_cast<double>(value)));
}

TEST(BlockFormat, HalvesRoundToNearestUnderAPowerOfTwo) {
  constexpr float kTop = 0x1p15f;
  // From 1 down to far below the smallest number that the format has; the first makes the scale a known one.
  std::vector<float> values = {0x1.fffffep-1f};
  for (int i = 1; i < 512; ++i)
    values.push_back((i % 2 == 0 ? 1 : -1) * std::exp2(-static_cast<float>(i) / 16) * 0.99f);
  const std::vector<float> back = round_trip(BlockFormat::kHalf, values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], nearest_half(values[i] * kTop) / kTop) << i;
}

TEST(BlockFormat, HalvesAndBFloat16AreThoseOfTheReductions) {
  std::vector<float> values = test_values(5000, 8);
  values[0] = 0x1.8p14f;  // the block's scale is 1, so that halves are plain ones
  for (size_t i = 0; i < 512; ++i) values[i] = i == 0 ? values[0] : values[i] * 1000;
  const std::vector<float> halves = round_trip(BlockFormat::kHalf, {values.begin(), values.begin() + 512});
  for (size_t i = 0; i < 512; ++i) ASSERT_EQ(halves[i], to_float(to_half(values[i]))) << i;
  values[7] = std::numeric_limits<float>::infinity();
  const std::vector<float> shorts = round_trip(BlockFormat::kBFloat16, values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(shorts[i], to_float(to_bfloat16(values[i]))) << i;
}

TEST(BlockFormat, StochasticRoundingIsRightOnAverage) {
  constexpr size_t kTrials = 4000;
  const std::vector<float> values = test_values(700, 11);
  const std::pair<BlockFormat, double> formats[] = {{BlockFormat::kQsgd8, 127},
                                                    {BlockFormat::kQsgd4, 7},
                                                    {BlockFormat::kQsgd2, 1},
                                                    {BlockFormat::kTernary, 1},
                                                    {BlockFormat::kQsgd1, 0.5}};
  for (const auto& [format, levels] : formats) {
    ASSERT_TRUE(is_stochastic(format));
    std::vector<double> mean(values.size());
    for (size_t trial = 0; trial < kTrials; ++trial) {
      const std::vector<float> back = round_trip(format, values, random_key(1, "mean", trial));
      for (size_t i = 0; i < values.size(); ++i) mean[i] += back[i] / static_cast<double>(kTrials);
    }
    size_t outside = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t first = i / 512 * 512;
      double largest = 0;
      for (size_t j = first; j < std::min(first + 512, values.size()); ++j) {
        largest = std::max(largest, std::fabs(static_cast<double>(values[j])));
      }
      // Between two levels, the upper one has the probability of the distance from the lower one.
      const double level = largest / levels, place = (values[i] + largest) / level, up = place - std::floor(place);
      const double deviation = level * std::sqrt(up * (1 - up) / kTrials);
      const double error = std::fabs(mean[i] - values[i]);
      // 16 random bits move the mean by up to 2^-17 of a level; a rare event may not have come at all.
      const double slack = level * (1e-5 + 2.0 / kTrials);
      ASSERT_LE(error, 5 * deviation + slack) << name_of(format) << " element " << i;
      outside += error > 2 * deviation + slack ? 1 : 0;
    }
    EXPECT_LT(outside, values.size() / 15) << name_of(format);  // 4.6 % are expected
  }
}

TEST(BlockFormat, RandomNumbersBelongToElements) {
  // The same elements, alone and as the second block of a longer array, with the same numbers.
  const std::vector<float> values = test_values(1024, 12);
  const std::vector<float> second(values.begin() + 512, values.end());
  const RandomKey random = random_key(5, "element", 0);
  const std::vector<float> whole = round_trip(BlockFormat::kQsgd4, values, random);
  const std::vector<float> part = decode(BlockFormat::kQsgd4, encode(BlockFormat::kQsgd4, second, random, 512), 512);
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 512, whole.end()));
  EXPECT_NE(encode(BlockFormat::kQsgd4, values, random_key(6, "element", 0)),
            encode(BlockFormat::kQsgd4, values, random));
  EXPECT_NE(encode(BlockFormat::kQsgd4, values, random_key(5, "element", 1)),
            encode(BlockFormat::kQsgd4, values, random));
}

TEST(BlockFormat, TakesItsNumbersFromPhilox) {
  // Of a block whose largest is 1, element e rounds up where its 16 bits reach 1 − fraction.
  const RandomKey random = random_key(5, "philox", 3);
  std::vector<float> values(512, 0.5f);
  values[0] = 1;
  const std::vector<float> back = round_trip(BlockFormat::kQsgd2, values, random);
  for (size_t e = 1; e < 512; ++e) {
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(e % 64), 0, random.high[0], random.high[1]}, {random.key[0], random.key[1]});
    const uint32_t number = words[e / 128] >> (e / 64 % 2 * 16) & 0xffffu;
    ASSERT_EQ(back[e], number >= 0x8000u ? 1.f : 0.f) << e;
  }
}

TEST(BlockFormat, ZerosStayZero) {
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    for (const float zero : {0.f, 1e-38f}) {  // the second is too small to matter
      for (const float value : round_trip(format_at(f), std::vector<float>(600, zero))) {
        ASSERT_LE(std::fabs(value), has_scale(format_at(f)) ? 0 : 1.01e-38f) << name_of(format_at(f));
      }
    }
  }
  std::vector<float> mixed(512, 0.f);
  mixed[3] = 2;
  for (const BlockFormat format :
       {BlockFormat::kQsgd8, BlockFormat::kQsgd4, BlockFormat::kQsgd2, BlockFormat::kTernary}) {
    EXPECT_EQ(round_trip(format, mixed), mixed) << name_of(format);  // zero has a level of its own
  }
}

TEST(BlockFormat, WhatIsNotFiniteMakesItsBlockNaN) {
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> values = test_values(1200, 4);
      values[600] = bad;
      const std::vector<float> back = round_trip(format_at(f), values);
      for (size_t i = 0; i < values.size(); ++i) {
        const bool here = has_scale(format_at(f)) ? i / 512 == 1 : i == 600;
        ASSERT_EQ(std::isfinite(back[i]), !here) << name_of(format_at(f)) << " " << i;
      }
      std::vector<uint8_t> wire(encoded_bytes(format_at(f), values.size()));
      encode_blocks_keeping_rest(format_at(f), values, wire);
      for (const float rest : values) ASSERT_TRUE(std::isfinite(rest)) << name_of(format_at(f));
    }
  }
}

TEST(BlockFormat, WhatIsSentAndWhatIsKeptAreTheValue) {
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    const std::vector<float> values = test_values(1300, 6);
    std::vector<float> rest = values;
    std::vector<uint8_t> wire(encoded_bytes(format_at(f), values.size()));
    encode_blocks_keeping_rest(format_at(f), rest, wire);
    const std::vector<float> sent = decode(format_at(f), wire, values.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rest[i], values[i] - sent[i]) << name_of(format_at(f));
  }
}

TEST(BlockFormat, PartsEndAtBlocks) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{512}, size_t{1537}, size_t{100000}}) {
    for (const int ranks : {1, 2, 3, 7}) {
      size_t first = 0;
      for (const size_t n : block_parts(count, ranks)) {
        EXPECT_TRUE(first % kBlockElements == 0 || n == 0);
        first += n;
      }
      EXPECT_EQ(first, count);
    }
  }
}

TEST(BlockFormat, RefusesWrongSizes) {
  std::vector<float> values(10);
  std::vector<uint8_t> wire(3);
  EXPECT_THROW(encode_blocks(BlockFormat::kInt8, values, wire), UsageError);
  EXPECT_THROW(decode_blocks(BlockFormat::kInt8, wire, values), UsageError);
  wire.resize(14);
  EXPECT_THROW(encode_blocks(BlockFormat::kInt8, values, wire, {}, 5), UsageError);
}

}  // namespace
}  // namespace trireme
