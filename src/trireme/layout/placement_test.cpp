#include "trireme/layout/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

Placement with_ratio(int dim, Placement::Ratio ratio) {
  Placement placement = Placement::shard(dim);
  placement.ratio = ratio;
  return placement;
}

TEST(Placement, PrintsAndReadsItself) {
  EXPECT_EQ(Placement::replicate().to_string(), "replicate");
  EXPECT_EQ(Placement::shard(1).to_string(), "shard(1)");
  EXPECT_EQ(Placement::shard(0, 2, 3).to_string(), "shard(0, stretches 2, unit 3)");
  EXPECT_EQ(Placement::partial(PartialOp::kMax).to_string(), "partial(max)");
  for (const char* text : {"replicate", "shard(0)", "shard(3)", "partial(sum)", "partial(average)", "partial(min)",
                           "shard(1, stretches 3)", "shard(0, unit 4)", "shard(2, stretches 2, ratio 2:1:1, unit 3)"}) {
    EXPECT_EQ(Placement::parse(text).to_string(), text);
  }
  EXPECT_EQ(Placement::parse("S(2)"), Placement::shard(2));
  EXPECT_EQ(Placement::parse("s-1"), Placement::shard(-1));
  EXPECT_EQ(Placement::parse("P"), Placement::partial());
  for (const char* text : {"", "x", "shard", "shard(", "shard(a)", "partial(product)", "replicated?",
                           "shard(0, stretches)", "shard(0, stretches 0)", "shard(0, unit -1)", "shard(0, ratio 1:2)",
                           "shard(0, ratio 0:1:1)", "shard(0, torn 2)"}) {
    EXPECT_THROW(Placement::parse(text), UsageError) << text;
  }
}

TEST(Placement, PiecesAreThoseOfTheNote) {
  EXPECT_EQ(pieces(Placement::shard(0, 2), 8, 2, 1), (std::vector<Piece>{{2, 2}, {6, 2}}));
  EXPECT_EQ(pieces(Placement::shard(0, 1, 2), 6, 2, 0), (std::vector<Piece>{{0, 4}}));
  EXPECT_EQ(pieces(Placement::shard(0, 1, 2), 6, 2, 1), (std::vector<Piece>{{4, 2}}));
  EXPECT_EQ(pieces(with_ratio(0, {2, 1, 1}), 16, 2, 1), (std::vector<Piece>{{4, 4}, {10, 2}, {14, 2}}));
}

TEST(Placement, PiecesOfAllRanksAreTheWhole) {
  for (const int axis_size : {1, 2, 3, 4, 7}) {
    for (const int64_t extent : {0, 1, 5, 6, 12, 24, 30}) {
      for (const Placement& shard : {Placement::shard(0), Placement::shard(0, 2), Placement::shard(0, 3, 2),
                                     Placement::shard(0, 1, 6), with_ratio(0, {2, 1, 1}), with_ratio(0, {4, 1, 1})}) {
        if (!fits(shard, extent)) continue;
        std::vector<int> owners(static_cast<size_t>(extent), 0);
        int64_t longest = 0, shortest = extent;
        for (int rank = 0; rank < axis_size; ++rank) {
          int64_t sum = 0;
          for (const Piece& piece : pieces(shard, extent, axis_size, rank)) {
            sum += piece.length;
            for (int64_t i = 0; i < piece.length; ++i) ++owners[static_cast<size_t>(piece.first + i)];
          }
          EXPECT_EQ(sum, local_extent(shard, extent, axis_size, rank));
          longest = std::max(longest, sum);
          shortest = std::min(shortest, sum);
        }
        EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](int count) { return count == 1; }))
            << shard.to_string() << " of " << extent << " over " << axis_size;
        EXPECT_TRUE(longest == shortest || !is_even(shard, extent, axis_size));
        const Placement same = canonical(shard, extent, axis_size);
        for (int rank = 0; rank < axis_size && same.is_shard(); ++rank) {
          EXPECT_EQ(pieces(same, extent, axis_size, rank), pieces(shard, extent, axis_size, rank));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme
