// Who is asked for what, in which order, and what becomes of the answers.
#include "trireme/measure/comm/table.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::measure {
namespace {

TEST(ParseTimes, ReadsAnswersAndRefusesOthers) {
  std::string algorithm;
  EXPECT_EQ(parse_times("ring 1.5 2 3.25", &algorithm, "measure"), (std::vector<double>{1.5, 2, 3.25}));
  EXPECT_EQ(algorithm, "ring");
  EXPECT_EQ(parse_times("0.5", nullptr, "barrier 1"), std::vector<double>{0.5});
  for (const char* answer : {"", "ring", "1.5 two 3"}) EXPECT_THROW(parse_times(answer, nullptr, "copy 8"), Error);
}

TEST(MeasureCommand, IsWhatTheWorkerReads) {
  EXPECT_EQ(measure_command(Operation::kAllReduce, Algorithm::kRing, false, 4096, 17),
            "measure all-reduce ring user 4096 17");
  EXPECT_EQ(measure_command(Operation::kBroadcast, Algorithm::kAuto, true, 8, 1),
            "measure broadcast auto registered 8 1");
}

TEST(Alternate, TakesTurnsInBlocksAndSortsWhatItGets) {
  std::string order;
  double next = 9;
  const Contestant falling = [&](int rounds) {
    order += "a";
    return std::vector<double>(static_cast<size_t>(rounds), next--);
  };
  const Contestant unable = [&](int) {
    order += "b";
    return std::vector<double>();
  };
  int blocks = 0;
  const auto times = alternate({falling, unable}, 64 << 20, std::nullopt, [&] { ++blocks; });
  EXPECT_EQ(order, "ababab");
  EXPECT_EQ(blocks, 2 * kBlocks);
  ASSERT_EQ(times[0].size(), 21u) << "20 rounds in three blocks";
  EXPECT_EQ(times[0].front(), 7);
  EXPECT_EQ(times[0].back(), 9);
  EXPECT_TRUE(times[1].empty());
}

TEST(Alternate, FillsTheTimeThatIsGiven) {
  int last = 0;
  const Contestant contestant = [&](int rounds) {
    last = rounds;
    return std::vector<double>(static_cast<size_t>(rounds), 1.0);
  };
  alternate({contestant}, 4096, 1000, [] {});
  EXPECT_EQ(last, 200'000) << "the most, for what takes next to no time";
  alternate({contestant}, 4096, 0, [] {});
  EXPECT_EQ(last, 1) << "the least";
}

TEST(CommResult, SummariesAreMedianMinimumAndNineTenths) {
  CommResult result;
  result.summarise({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99});
  EXPECT_EQ(result.us, 6);
  EXPECT_EQ(result.fastest_us, 1);
  EXPECT_EQ(result.slow_us, 10);
  EXPECT_EQ(result.rounds, 11u);
}

TEST(PossibleAlgorithms, DependOnTheTransport) {
  const std::vector<Algorithm> wanted = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kInPlace};
  EXPECT_EQ(possible_algorithms(wanted, 2, "shared memory"), wanted);
  EXPECT_EQ(possible_algorithms(wanted, 2, "tcp"), (std::vector{Algorithm::kAuto, Algorithm::kRing}));
}

}  // namespace
}  // namespace trireme::measure
