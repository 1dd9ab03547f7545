#include "trireme/comm/algorithms/tuner.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/comm/algorithms/algorithms.h"
#include "trireme/comm/host/board.h"

namespace trireme {
namespace {

/// Sets TRIREME_ALGORITHM, or unsets it, until the end of a test.
class Forced {
 public:
  explicit Forced(const char* name) {
    if (const char* before = std::getenv("TRIREME_ALGORITHM")) before_ = before;
    name != nullptr ? setenv("TRIREME_ALGORITHM", name, 1) : unsetenv("TRIREME_ALGORITHM");
  }
  ~Forced() { before_.empty() ? unsetenv("TRIREME_ALGORITHM") : setenv("TRIREME_ALGORITHM", before_.c_str(), 1); }

 private:
  std::string before_;
};

Tuner::Situation remote(int ranks, bool ordered = true) { return {ranks, false, 1, true, ordered}; }
Tuner::Situation on_one_host(int ranks, bool ordered = true) { return {ranks, true, ranks, true, ordered}; }

TEST(Tuner, TakesSharedMemoryWhereItCan) {
  const Forced none(nullptr);
  const Tuner tuner;
  for (const int ranks : {2, 3, 8, 64}) {
    for (const size_t bytes : {size_t{4}, size_t{1} << 30}) {
      EXPECT_EQ(tuner.choose(bytes, on_one_host(ranks)), Algorithm::kInPlace);
    }
    EXPECT_EQ(tuner.choose_on_one_host(ranks, true), Algorithm::kInPlace);
  }
}

TEST(Tuner, KeepsVeryManyRanksFromMappingEachOther) {
  const Forced none(nullptr);
  const Tuner tuner;
  EXPECT_EQ(tuner.choose(Board::stage_bytes(1000), on_one_host(1000)), Algorithm::kInPlace);
  EXPECT_NE(tuner.choose(1 << 20, on_one_host(1000)), Algorithm::kInPlace);
}

TEST(Tuner, ChoosesWhatThePredictionSaysIsCheapest) {
  const Forced none(nullptr);
  const Tuner tuner;
  for (const int ranks : {2, 3, 4, 7, 16, 64}) {
    for (const bool ordered : {true, false}) {
      for (size_t bytes = 4; bytes <= (size_t{1} << 30); bytes *= 8) {
        const Algorithm chosen = tuner.choose(bytes, remote(ranks, ordered));
        ASSERT_TRUE(tuner.possible(chosen, remote(ranks, ordered)));
        for (const Algorithm other : all_algorithms()) {
          if (!tuner.possible(other, remote(ranks, ordered)) || other == Algorithm::kTwoLevel) continue;
          EXPECT_LE(tuner.predict_us(chosen, bytes, remote(ranks, ordered)),
                    tuner.predict_us(other, bytes, remote(ranks, ordered)))
              << name_of(chosen) << " instead of " << name_of(other) << ", " << ranks << " ranks, " << bytes;
        }
      }
    }
  }
}

TEST(Tuner, NeverGivesUpTheOrderUnasked) {
  const Forced none(nullptr);
  const Tuner tuner;
  for (int ranks = 2; ranks <= 70; ++ranks) {
    for (size_t bytes = 1; bytes <= (size_t{1} << 32); bytes *= 16) {
      EXPECT_TRUE(keeps_order(tuner.choose(bytes, remote(ranks)), ranks));
      Tuner::Situation crooked{ranks, false, 3, false, true};
      EXPECT_NE(tuner.choose(bytes, crooked), Algorithm::kTwoLevel);
    }
  }
}

TEST(Tuner, TakesTwoLevelsForLongDataOnFullHosts) {
  const Forced none(nullptr);
  const Tuner tuner;
  const Tuner::Situation hosts{16, false, 8, true, true};
  EXPECT_EQ(tuner.choose(64 << 20, hosts), Algorithm::kTwoLevel);
  EXPECT_NE(tuner.choose(64 << 20, remote(16)), Algorithm::kTwoLevel);  // one rank a host
}

TEST(Tuner, KnowsWhatIsPossible) {
  const Tuner tuner;
  EXPECT_FALSE(tuner.possible(Algorithm::kAuto, on_one_host(4)));
  EXPECT_TRUE(tuner.possible(Algorithm::kInPlace, on_one_host(4)));
  EXPECT_FALSE(tuner.possible(Algorithm::kInPlace, remote(4)));
  EXPECT_FALSE(tuner.possible(Algorithm::kRing, remote(3)));
  EXPECT_TRUE(tuner.possible(Algorithm::kRing, remote(3, false)));
  EXPECT_TRUE(tuner.possible(Algorithm::kRing, remote(2)));
  EXPECT_TRUE(tuner.possible(Algorithm::kRecursiveHalving, remote(8)));
  EXPECT_FALSE(tuner.possible(Algorithm::kRecursiveHalving, remote(6)));
}

TEST(Tuner, ObeysTheVariableWhereItCan) {
  const Forced ring("ring");
  const Tuner tuner;
  EXPECT_EQ(tuner.choose(100, remote(4, false)), Algorithm::kRing);
  EXPECT_EQ(tuner.choose_on_one_host(4, false), Algorithm::kRing);
  // The order is a promise: the variable does not break it.
  EXPECT_NE(tuner.choose(100, remote(4, true)), Algorithm::kRing);
  EXPECT_EQ(tuner.choose_on_one_host(4, true), Algorithm::kInPlace);
  const Forced nonsense("rong");
  EXPECT_THROW(Tuner(), UsageError);
  const Forced automatic("auto");
  EXPECT_EQ(Tuner().choose_on_one_host(4, false), Algorithm::kInPlace);
}

TEST(Tuner, TwoLevelsAreForcedOnlyWhereThereAreTwo) {
  const Forced two_level("two-level");
  const Tuner tuner;
  EXPECT_EQ(tuner.choose(100, {4, false, 2, true, true}), Algorithm::kTwoLevel);
  // The groups that two levels work with: one rank a host, one host, one rank.
  EXPECT_NE(tuner.choose(100, remote(4)), Algorithm::kTwoLevel);
  EXPECT_NE(tuner.choose(100, remote(1)), Algorithm::kTwoLevel);
  EXPECT_NE(tuner.choose(100, on_one_host(4)), Algorithm::kTwoLevel);
  EXPECT_EQ(tuner.choose_on_one_host(4, true), Algorithm::kInPlace);
}

TEST(Tuner, TravelsAsText) {
  Tuner sent;
  {
    const Forced tree("tree");
    ClusterFile cluster = ClusterFile::defaults();
    for (TransportCost& cost : cluster.transports) cost.link.latency_us *= 1.0 / 3;
    sent = Tuner(cluster, "tcp");
  }
  const Forced other("ring");  // the receiver's own variable does not count
  const Tuner received = Tuner::parse(sent.serialize());
  EXPECT_EQ(received.serialize(), sent.serialize());
  EXPECT_EQ(received.choose(100, remote(4, false)), Algorithm::kTree);
  for (const Algorithm algorithm : all_algorithms()) {
    EXPECT_EQ(received.predict_us(algorithm, 12345, remote(4)), sent.predict_us(algorithm, 12345, remote(4)));
  }
}

TEST(Tuner, RefusesTextThatIsNone) {
  const std::string good = Tuner().serialize();
  EXPECT_THROW(Tuner::parse(""), Error);
  EXPECT_THROW(Tuner::parse("hello"), Error);
  EXPECT_THROW(Tuner::parse(good.substr(0, good.size() / 2)), Error);
  EXPECT_THROW(Tuner::parse(good + "99"), Error);  // no such algorithm
}

}  // namespace
}  // namespace trireme
