// Known answers of Random123, independence of the partition, and moments.
#include "trireme/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace trireme {
namespace {

TEST(Philox, KnownAnswers) {
  // kat_vectors of Random123 1.14, philox4x32 with 10 rounds.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheNameCounts) {
  std::set<PhiloxCounter> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    for (const char* stream : {"", "a", "b", "layers.0.weight"}) {
      for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
          seen.insert(Philox(seed, stream, step)(index));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 3u * 4 * 3 * 3);
}

TEST(Philox, FillInPartsIsFillAtOnce) {
  const Philox philox(7, "weights", 3);
  std::vector<float> uniform(103), normal(103);
  philox.fill_uniform(uniform, 5);
  philox.fill_normal(normal, 5);
  for (size_t i = 0; i < uniform.size(); ++i) {
    EXPECT_EQ(uniform[i], philox.uniform(5 + i));
    EXPECT_EQ(normal[i], philox.normal(5 + i));
  }
  std::vector<float> part(20);
  philox.fill_normal(part, 5 + 31);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), normal.begin() + 31));
  philox.fill_normal({}, 5);
}

TEST(Philox, Moments) {
  constexpr size_t kCount = 200'000;
  const Philox philox(1, "moments");
  std::vector<float> values(kCount);
  const auto moments = [&] {
    double mean = 0, square = 0;
    for (const float value : values) mean += value / kCount, square += double(value) * value / kCount;
    return std::pair(mean, square - mean * mean);
  };
  philox.fill_uniform(values);
  for (const float value : values) ASSERT_TRUE(value >= 0 && value < 1);
  EXPECT_NEAR(moments().first, 0.5, 0.003);
  EXPECT_NEAR(moments().second, 1 / 12., 0.001);
  philox.fill_normal(values);
  for (const float value : values) ASSERT_TRUE(std::isfinite(value));
  EXPECT_NEAR(moments().first, 0, 0.01);
  EXPECT_NEAR(moments().second, 1, 0.015);
}

TEST(Philox, Below) {
  const Philox philox(3);
  std::vector<int> counts(6);
  for (uint64_t i = 0; i < 6000; ++i) ++counts.at(philox.below(6, i));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(philox.below(1, 9), 0u);
}

}  // namespace
}  // namespace trireme
