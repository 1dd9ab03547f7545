#include "trireme/runtime/flat_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/philox.h"
#include "trireme/optimizer/kernels.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

TEST(FlatLayout, TheLastComeFirstAndShardedOnesBeforeTheRest) {
  const FlatLayout layout({{.count = 100, .sharded = true}, {.count = 7}, {.count = 33, .sharded = true}, {.count = 1}},
                          {.bucket_elements = 1000, .first_bucket_elements = 1000});
  ASSERT_EQ(layout.groups().size(), 2u);
  EXPECT_EQ(layout.groups()[0].items, (std::vector<size_t>{2, 0}));
  EXPECT_EQ(layout.groups()[1].items, (std::vector<size_t>{3, 1}));
  EXPECT_EQ(layout.places()[0].offset, 64);
  EXPECT_EQ(layout.size(), 64 + 128 + 32 + 32);
}

TEST(FlatLayout, UnitsStayTogetherAndLonersAlone) {
  const std::vector<FlatItem> items = {{.count = 64, .sharded = true, .alone = true, .unit = 0},
                                       {.count = 64, .sharded = true, .unit = 0},
                                       {.count = 64, .sharded = true, .unit = 1},
                                       {.count = 64, .sharded = true, .unit = 1},
                                       {.count = 64, .sharded = true, .unit = 2}};
  const auto groups_of = [&](bool by_unit) {
    std::vector<std::vector<size_t>> all;
    const FlatLayout layout(items, {.bucket_elements = 1, .first_bucket_elements = 1, .by_unit = by_unit});
    for (const auto& group : layout.groups()) all.push_back(group.items);
    return all;
  };
  EXPECT_EQ(groups_of(true), (std::vector<std::vector<size_t>>{{4}, {3, 2}, {1}, {0}}));
  EXPECT_EQ(groups_of(false), (std::vector<std::vector<size_t>>{{4}, {3}, {2}, {1}, {0}}));
}

// Over random sizes: parts cover everything once, cut no block, and are equal up to a block.
TEST(FlatLayout, PartsAreWholeBlocksAndNearlyEqual) {
  const Philox random(7, "flat layout");
  for (uint64_t round = 0; round < 200; ++round) {
    std::vector<FlatItem> items;
    for (uint64_t i = 0; i < 1 + round % 9; ++i) {
      items.push_back({.count = 1 + static_cast<int64_t>(random(round * 16 + i)[0] % 30000), .sharded = true});
    }
    const FlatLayout layout(items, {.bucket_elements = 40000, .first_bucket_elements = 40000});
    const int num_parts = 1 + static_cast<int>(round % 8);
    std::vector<int64_t> seen(items.size(), 0);
    std::vector<double> held(static_cast<size_t>(num_parts), 0);
    for (int group = 0; group < static_cast<int>(layout.groups().size()); ++group) {
      const std::vector<int64_t> cuts = layout.cuts(group, num_parts);
      const int64_t size = layout.groups()[static_cast<size_t>(group)].size;
      ASSERT_EQ(cuts.size(), static_cast<size_t>(num_parts) + 1);
      EXPECT_EQ(cuts.back(), size);
      for (int part = 0; part < num_parts; ++part) {
        const auto at = static_cast<size_t>(part);
        ASSERT_LE(cuts[at], cuts[at + 1]);
        EXPECT_NEAR(static_cast<double>(cuts[at]), static_cast<double>(size * part) / num_parts, kSquaresBlock + 1);
        held[at] += static_cast<double>(cuts[at + 1] - cuts[at]);
        for (const FlatLayout::Range& range : layout.ranges(group, cuts[at], cuts[at + 1])) {
          EXPECT_EQ(range.first, seen[range.item]);
          EXPECT_EQ(range.first % static_cast<int64_t>(kSquaresBlock), 0);
          seen[range.item] += range.count;
        }
      }
    }
    for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(seen[i], items[i].count);
    for (const double part : held) {
      EXPECT_NEAR(part, static_cast<double>(layout.size()) / num_parts, kSquaresBlock + 32.0 * num_parts) << round;
    }
  }
}

}  // namespace
}  // namespace trireme
