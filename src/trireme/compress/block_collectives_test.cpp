// Tests that packed gathers and sums are right for parts of any size, the same on all ranks, and as small as promised.
#include "trireme/compress/block_collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/compress/compress_test_util.h"

namespace trireme {
namespace {

/// Unequal, some empty, not at borders of blocks.
std::vector<size_t> odd_parts(int ranks) {
  std::vector<size_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r % 3 == 1 ? 0 : 300 * static_cast<size_t>(r + 1) + 7);
  return counts;
}

TEST(BlockCollectives, GatherGivesEveryRankWhatTheOwnersEncoded) {
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    for (const int ranks : {1, 2, 3, 5}) {
      run_as_threads(ranks, [&](World& world) {
        const std::vector<size_t> counts = odd_parts(ranks);
        BlockCollectives blocks(world.comm(), format_at(f), counts);
        std::vector<float> out(blocks.count()), expected;
        uint64_t sent = 0;
        for (size_t r = 0; r < counts.size(); ++r) {
          const std::vector<float> part = test_values(counts[r], r);
          std::vector<uint8_t> wire(encoded_bytes(format_at(f), counts[r]));
          std::vector<float> back(counts[r]);
          if (!is_stochastic(format_at(f))) {
            encode_blocks(format_at(f), part, wire);
            decode_blocks(format_at(f), wire, back);
          }
          expected.insert(expected.end(), back.begin(), back.end());
          if (r == static_cast<size_t>(world.rank())) {
            blocks.all_gather(part, out, random_key(1, "gather", 0));
            sent = wire.size() * (counts.size() - 1);
          }
        }
        if (!is_stochastic(format_at(f))) {
          EXPECT_EQ(out, expected) << name_of(format_at(f));
        }
        EXPECT_EQ(blocks.bytes_sent(), sent);
        std::vector<float> other = out;
        world.comm().broadcast(other, 0);
        EXPECT_EQ(out, other) << name_of(format_at(f));
      });
    }
  }
}

TEST(BlockCollectives, SumIsThatOfTheRoundedContributions) {
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    if (is_stochastic(format_at(f))) continue;
    run_as_threads(4, [&](World& world) {
      const std::vector<size_t> counts = odd_parts(4);
      BlockCollectives blocks(world.comm(), format_at(f), counts);
      std::vector<float> out(blocks.own_count()), expected(blocks.own_count());
      blocks.reduce_scatter(test_values(blocks.count(), static_cast<uint64_t>(world.rank())), out);
      for (uint64_t r = 0; r < 4; ++r) {
        const std::vector<float> whole = test_values(blocks.count(), r);
        const std::span<const float> part = std::span(whole).subspan(blocks.own_first(), blocks.own_count());
        std::vector<uint8_t> wire(encoded_bytes(format_at(f), part.size()));
        encode_blocks(format_at(f), part, wire);
        r == 0 ? decode_blocks(format_at(f), wire, expected) : add_blocks(format_at(f), wire, expected);
      }
      EXPECT_EQ(out, expected) << name_of(format_at(f));
    });
  }
}

TEST(BlockCollectives, StochasticSumsAreRightOnAverage) {
  run_as_threads(3, [](World& world) {
    BlockCollectives blocks(world.comm(), BlockFormat::kQsgd2, {700, 0, 30});
    const std::vector<float> own = test_values(730, static_cast<uint64_t>(world.rank()));
    std::vector<float> exact = own;
    world.comm().all_reduce(exact);
    std::vector<double> mean(blocks.own_count());
    for (uint64_t step = 0; step < 2000; ++step) {
      std::vector<float> out(blocks.own_count());
      blocks.reduce_scatter(own, out, random_key(static_cast<uint64_t>(world.rank()), "sum", step));
      for (size_t i = 0; i < out.size(); ++i) mean[i] += out[i] / 2000.0;
    }
    // A deviation is at most 3 levels of 0.2 / 2, over √2000.
    for (size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], exact[blocks.own_first() + i], 0.02) << i;
  });
}

TEST(BlockCollectives, KeepsWhatIsRoundedAway) {
  run_as_threads(2, [](World& world) {
    BlockCollectives blocks(world.comm(), BlockFormat::kInt8, {600, 500});
    const std::vector<float> own = test_values(1100, static_cast<uint64_t>(world.rank()));
    std::vector<float> rest = own, sum(blocks.own_count());
    blocks.reduce_scatter_keeping_rest(rest, sum);
    std::vector<float> all_rest = rest, exact = own;
    world.comm().all_reduce(all_rest);
    world.comm().all_reduce(exact);
    for (size_t i = 0; i < sum.size(); ++i) {
      const size_t at = blocks.own_first() + i;
      ASSERT_NEAR(sum[i] + all_rest[at], exact[at], 1e-6);
    }
    std::vector<float> kept = sum, gathered(1100);
    blocks.all_gather_keeping_rest(kept, gathered);
    for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(gathered[blocks.own_first() + i] + kept[i], sum[i], 1e-6);
  });
}

TEST(BlockCollectives, RefusesWrongSizes) {
  run_as_threads(1, [](World& world) {
    EXPECT_THROW(BlockCollectives(world.comm(), BlockFormat::kInt8, {1, 2}), UsageError);
    BlockCollectives blocks(world.comm(), BlockFormat::kInt8, {10});
    std::vector<float> ten(10), nine(9);
    EXPECT_THROW(blocks.all_gather(nine, ten), UsageError);
    EXPECT_THROW(blocks.all_gather(ten, nine), UsageError);
    EXPECT_THROW(blocks.reduce_scatter(nine, ten), UsageError);
    EXPECT_THROW(blocks.reduce_scatter(ten, nine), UsageError);
  });
}

}  // namespace
}  // namespace trireme
