// Initial weights: the same in parts as at once, with the deviation that was asked for.
#include "trireme/models/initial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

std::vector<float> filled(const Initial& initial, size_t size, uint64_t seed = 1, std::string_view name = "a.weight") {
  std::vector<float> values(size);
  fill_initial(initial, seed, name, values);
  return values;
}

TEST(Initial, PartsEqualTheWhole) {
  for (const Initial initial : {Initial::normal(0.5), Initial::uniform(2), Initial::constant(3)}) {
    const auto whole = filled(initial, 1000);
    for (const size_t cut : {1u, 2u, 333u, 998u}) {
      std::vector<float> parts(1000);
      const std::span all(parts);
      fill_initial(initial, 1, "a.weight", all.subspan(cut), cut);
      fill_initial(initial, 1, "a.weight", all.first(cut), 0);
      EXPECT_EQ(parts, whole) << cut;
    }
  }
}

TEST(Initial, SeedAndNameMatter) {
  const auto base = filled(Initial::normal(1), 100);
  EXPECT_NE(base, filled(Initial::normal(1), 100, 2));
  EXPECT_NE(base, filled(Initial::normal(1), 100, 1, "b.weight"));
}

TEST(Initial, HasTheSpreadThatWasAskedFor) {
  const auto normal = filled(Initial::normal(0.3), 50'000), uniform = filled(Initial::uniform(0.7), 50'000);
  double square = 0;
  for (const float x : normal) square += double{x} * x;
  EXPECT_NEAR(std::sqrt(square / 50'000), 0.3, 0.005);
  EXPECT_NEAR(*std::ranges::max_element(uniform), 0.7, 0.001);
  EXPECT_NEAR(*std::ranges::min_element(uniform), -0.7, 0.001);
}

TEST(Initial, NameAndShapeSuggestTheRule) {
  const std::vector<int64_t> vector = {8}, matrix = {8, 4}, kernel = {16, 8, 3, 3};
  EXPECT_EQ(default_initial("a.bias", vector), Initial::constant(0));
  EXPECT_EQ(default_initial("norm.weight", vector), Initial::constant(1));
  EXPECT_EQ(default_initial("a.weight", matrix), Initial::normal(0.02));
  EXPECT_EQ(default_initial("conv.weight", kernel), Initial::normal(std::sqrt(2.0 / (16 * 9))));
}

}  // namespace
}  // namespace trireme
