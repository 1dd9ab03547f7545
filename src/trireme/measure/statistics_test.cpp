// Fits must find the constants that made the data, and must not be led astray by one bad measurement.
#include "trireme/measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace trireme::measure {
namespace {

constexpr double kSizes[] = {8, 256, 4096, 32768, 262144, 1048576, 8388608};

Timings times_of(double latency_us, double us_per_byte) {
  Timings timings;
  for (const double bytes : kSizes) timings.emplace_back(bytes, latency_us + bytes * us_per_byte);
  return timings;
}

TEST(Statistics, QuantilesOfSortedValues) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 0.5), 6);
  EXPECT_EQ(quantile(values, 0.9), 10);
  EXPECT_EQ(quantile(values, 1), 11);
  EXPECT_EQ(quantile({3}, 0.9), 3);
  EXPECT_THROW(quantile({}, 0.5), std::out_of_range);
}

TEST(Statistics, AMedianIgnoresOutliersAndOrder) {
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({1e9, 2, 1, 3, 2}), 2);
  EXPECT_EQ(median({4, 1}), 4);
}

TEST(FitLine, FindsTheConstantsThatMadeTheTimes) {
  for (const auto& [latency_us, us_per_byte] : {std::pair{0.4, 1e-4}, {25.0, 3e-4}, {1000.0, 1e-6}}) {
    const LinkCost line = fit_line(times_of(latency_us, us_per_byte));
    EXPECT_NEAR(line.latency_us, latency_us, 1e-6 * latency_us);
    EXPECT_NEAR(line.us_per_byte, us_per_byte, 1e-6 * us_per_byte);
  }
}

TEST(FitLine, NoiseOfATenthMovesTheConstantsByLess) {
  Timings timings = times_of(10, 1e-4);
  for (size_t i = 0; i < timings.size(); ++i) timings[i].second *= i % 2 == 0 ? 1.1 : 0.9;
  const LinkCost line = fit_line(timings);
  EXPECT_NEAR(line.latency_us, 10, 1);
  EXPECT_NEAR(line.us_per_byte, 1e-4, 1e-5);
}

TEST(FitLine, ALongMessageDoesNotDrownTheShortOnes) {
  Timings timings = times_of(10, 1e-4);
  timings.back().second *= 1.2;  // 168 µs more: seventeen latencies
  EXPECT_NEAR(fit_line(timings).latency_us, 10, 1);
}

TEST(FitLine, NeitherConstantIsNegative) {
  const LinkCost shrinking = fit_line(Timings{{8, 100}, {8000, 50}, {8000000, 10}});
  EXPECT_EQ(shrinking.us_per_byte, 0);
  EXPECT_GT(shrinking.latency_us, 0);
  const LinkCost curved = fit_line(Timings{{1000, 0.1}, {2000, 1}, {4000, 10}});
  EXPECT_EQ(curved.latency_us, 0);
  EXPECT_GT(curved.us_per_byte, 0);
  EXPECT_EQ(fit_line(Timings{{8, 3}}), LinkCost{}) << "one size does not tell them apart";
}

TEST(FitRate, IsTheGeometricMean) {
  EXPECT_NEAR(fit_rate(Timings{{1000, 1}, {1000, 4}}), 2e-3, 1e-12);
  EXPECT_NEAR(fit_rate(Timings{{100, 5}, {1e6, 5e4}}), 0.05, 1e-12);
  EXPECT_EQ(fit_rate({}), 0);
}

TEST(MedianError, IsRelativeToWhatWasMeasured) {
  const std::vector<std::pair<double, double>> pairs = {{110, 100}, {50, 100}, {1000, 1000}};
  EXPECT_NEAR(median_error(pairs), 0.1, 1e-12);
  EXPECT_EQ(median_error({}), 0);
}

}  // namespace
}  // namespace trireme::measure
