// Counts of messages as a crew reports them, and where predictions cross.
#include "trireme/measure/comm/explain.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::measure {
namespace {

TEST(ParseTraffic, KeepsRankZeroApartAndTakesTheMostOfTheOthers) {
  const auto [root, others] = parse_traffic("3 300 9 9 2  1 100 9 9 4  2 50 9 9 1");
  EXPECT_EQ(root.messages, 3);
  EXPECT_EQ(root.bytes, 300);
  EXPECT_EQ(root.rounds, 2);
  EXPECT_EQ(others.messages, 2);
  EXPECT_EQ(others.bytes, 100);
  EXPECT_EQ(others.rounds, 4);
  EXPECT_THROW(parse_traffic(""), Error);
  EXPECT_THROW(parse_traffic("3 300 9 9 2 one"), Error);
}

TEST(Crossings, LatencyDecidesFirstAndBandwidthLater) {
  ClusterFile file;
  file.transports = {{"tcp", 0, {50, 1e-3}, 0, 0, 0}, {"shared memory", 0, {1, 1e-4}, 0, 1, 0}};
  const Tuner tuner(file, "tcp");
  const Tuner::Situation eight{8, false, 1, true, false};
  const std::vector<Crossing> found = crossings(tuner, eight);
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0].from_bytes, 4u);
  for (size_t i = 0; i < found.size(); ++i) {
    const uint64_t at = found[i].from_bytes;
    for (const Algorithm other : {Algorithm::kRing, Algorithm::kParallel, Algorithm::kButterfly}) {
      EXPECT_LE(tuner.predict_us(found[i].algorithm, at, eight), tuner.predict_us(other, at, eight) * (1 + 1e-9));
    }
    if (i == 0) continue;
    EXPECT_GT(at, found[i - 1].from_bytes);
    EXPECT_NE(found[i].algorithm, found[i - 1].algorithm);
  }
}

}  // namespace
}  // namespace trireme::measure
