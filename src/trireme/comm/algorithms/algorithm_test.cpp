// Tests that every algorithm has a name, and that a misspelt one is answered with the nearest.
#include "trireme/comm/algorithms/algorithm.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string complaint_about(std::string_view name) {
  try {
    algorithm_named(name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Algorithm, EveryNameLeadsBack) {
  std::set<std::string_view> names;
  for (Algorithm algorithm : all_algorithms()) {
    EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
    names.insert(name_of(algorithm));
  }
  EXPECT_EQ(names.size(), 11u);
  EXPECT_EQ(algorithm_named("auto"), Algorithm::kAuto);
}

TEST(Algorithm, AllIsTheEnumerationWithoutAuto) {
  const auto all = all_algorithms();
  ASSERT_EQ(all.size(), 11u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(static_cast<size_t>(all[i]), i + 1);
}

TEST(Algorithm, NamesMatchTheirMeaning) {
  EXPECT_EQ(name_of(Algorithm::kSequential), "sequential");
  EXPECT_EQ(name_of(Algorithm::kRecursiveHalving), "recursive-halving");
  EXPECT_EQ(name_of(Algorithm::kFarthestFirst), "farthest-first");
  EXPECT_EQ(name_of(Algorithm::kOrdered), "ordered");
  EXPECT_EQ(name_of(Algorithm::kInPlace), "in-place");
}

TEST(Algorithm, UnderscoresAreHyphens) {
  EXPECT_EQ(algorithm_named("two_level"), Algorithm::kTwoLevel);
  EXPECT_EQ(algorithm_named("recursive_halving"), Algorithm::kRecursiveHalving);
}

TEST(Algorithm, AWrongNameIsAnsweredWithTheNearestAndTheList) {
  EXPECT_NE(complaint_about("rnig").find("did you mean 'ring'?"), std::string::npos);
  EXPECT_NE(complaint_about("inplace").find("did you mean 'in-place'?"), std::string::npos);
  EXPECT_NE(complaint_about("recursive_halfing").find("did you mean 'recursive-halving'?"), std::string::npos);
  const std::string complaint = complaint_about("buterfly");
  EXPECT_NE(complaint.find("'buterfly'"), std::string::npos);
  for (Algorithm algorithm : all_algorithms()) EXPECT_NE(complaint.find(name_of(algorithm)), std::string::npos);
  EXPECT_NE(complaint_about(""), "");
}

}  // namespace
}  // namespace trireme
