// Tests of every method over running ranks: the same bits everywhere, nothing lost, the promised number of bytes.
#include "trireme/compress/exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/world.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/formats/select.h"
#include "trireme/compress/formats/sparse_format.h"

namespace trireme {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 5, 8};

/// A matrix of 40 columns, a vector, and some padding.
GroupLayout layout_of(size_t count) {
  GroupLayout layout{"group", count, {}};
  const size_t rows = count / 2 / 40;
  if (rows > 0) layout.parts.push_back({"weight", 0, rows, 40});
  const size_t rest = count - rows * 40;
  if (rest > 3) layout.parts.push_back({"bias", rows * 40 + 2, 1, rest - 3});
  return layout;
}

struct Outcome {
  std::vector<std::vector<std::vector<float>>> sums;  ///< by step and rank
  std::vector<StatePieces> states;                    ///< by rank
  std::vector<uint64_t> bytes;                        ///< by rank
};

Outcome run(int num_ranks, const CompressionOptions& options, size_t count, size_t num_steps) {
  Outcome outcome;
  outcome.sums.resize(num_steps, std::vector<std::vector<float>>(static_cast<size_t>(num_ranks)));
  outcome.states.resize(static_cast<size_t>(num_ranks));
  outcome.bytes.resize(static_cast<size_t>(num_ranks));
  run_as_threads(num_ranks, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const auto exchange = make_exchange(world.comm(), options, layout_of(count));
    for (size_t step = 0; step < num_steps; ++step) {
      std::vector<float> values = test_values(count, rank, step);
      exchange->sum(values, step);
      outcome.sums[step][rank] = values;
    }
    exchange->save(outcome.states[rank]);
    outcome.bytes[rank] = exchange->bytes_sent();
  });
  return outcome;
}

TEST(Exchange, AllRanksGetTheSameBits) {
  for (const CompressionOptions& options : all_options()) {
    for (const int ranks : kWorlds) {
      for (const size_t count : {1, 511, 1537}) {
        const Outcome outcome = run(ranks, options, count, 2);
        for (const auto& sums : outcome.sums) {
          for (const auto& sum : sums) {
            ASSERT_EQ(bits_of(sum), bits_of(sums[0])) << label(options) << " " << ranks << " ranks, " << count;
          }
        }
      }
    }
  }
}

TEST(Exchange, DenseIsTheSumOfTheCommunicator) {
  run_as_threads(3, [](World& world) {
    std::vector<float> values = test_values(1000, static_cast<uint64_t>(world.rank())), expected = values;
    make_exchange(world.comm(), {}, layout_of(1000))->sum(values, 0);
    world.comm().all_reduce(expected);
    EXPECT_EQ(values, expected);
  });
}

/// What was sent in all steps, and what is still kept, are the gradients of all ranks and steps.
TEST(Exchange, ErrorFeedbackLosesNothing) {
  constexpr size_t kSteps = 6;
  for (const CompressionOptions& base : all_options()) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const size_t count : {7, 1537}) {
        CompressionOptions options = base;
        if (options.method == Method::kDgc) options.momentum = 0;  // then velocity is the gradient
        if (!keeps_residual(options)) {
          if (feedback_of(options.method) != Feedback::kPossible) continue;
          options.error_feedback = true;
        }
        const Outcome outcome = run(ranks, options, count, kSteps);
        std::vector<double> sent(count), given(count);
        for (size_t step = 0; step < kSteps; ++step) {
          for (size_t i = 0; i < count; ++i) sent[i] += outcome.sums[step][0][i];
          for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
            const std::vector<float> values = test_values(count, rank, step);
            for (size_t i = 0; i < count; ++i) given[i] += values[i];
          }
        }
        const GroupLayout layout = checked(layout_of(count));
        for (const StatePieces& pieces : outcome.states) {
          for (const StatePiece& piece : pieces) {
            if (!piece.name.starts_with("residual/") && !piece.name.starts_with("sum_residual/")) continue;
            for (const TensorPart& part : layout.parts) {
              if (!piece.name.ends_with("/" + part.name)) continue;
              for (size_t i = 0; i < piece.values.size(); ++i) sent[part.offset + piece.first + i] += piece.values[i];
            }
          }
        }
        for (size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(sent[i], given[i], 2e-6) << label(options) << " " << ranks << " " << i;
        }
      }
    }
  }
}

/// The mean over many steps of what arrives, for the methods that are right on average.
TEST(Exchange, UnbiasedMethodsAreRightOnAverage) {
  constexpr size_t kSteps = 1500, kCount = 130;
  for (CompressionOptions options : all_options()) {
    const auto format = block_format(options);
    if (!format || !is_stochastic(*format)) continue;
    run_as_threads(3, [&](World& world) {
      const auto exchange = make_exchange(world.comm(), options, layout_of(kCount));
      const std::vector<float> own = test_values(kCount, static_cast<uint64_t>(world.rank()));
      std::vector<float> exact = own;
      world.comm().all_reduce(exact);
      std::vector<double> mean(kCount), square(kCount);
      for (size_t step = 0; step < kSteps; ++step) {
        std::vector<float> values = own;
        exchange->sum(values, step);
        for (size_t i = 0; i < kCount; ++i) {
          mean[i] += values[i] / static_cast<double>(kSteps);
          square[i] += static_cast<double>(values[i]) * values[i] / static_cast<double>(kSteps);
        }
      }
      for (size_t i = 0; i < kCount; ++i) {
        const double deviation = std::sqrt(std::max(0.0, square[i] - mean[i] * mean[i]) / kSteps);
        ASSERT_NEAR(mean[i], exact[i], 5 * deviation + 1e-6) << label(options) << " " << i;
      }
    });
  }
}

TEST(Exchange, SendsThePromisedNumberOfBytes) {
  constexpr size_t kCount = 70001;
  for (const CompressionOptions& options : all_options()) {
    for (const int ranks : {1, 2, 4}) {
      const Outcome outcome = run(ranks, options, kCount, 1);
      const auto p = static_cast<uint64_t>(ranks);
      uint64_t all = 0;
      for (const uint64_t bytes : outcome.bytes) all += bytes;
      if (const auto format = block_format(options)) {
        // Every part goes once to its owner and once from it, but for a rank's own.
        uint64_t wire = 0;
        for (const size_t count : block_parts(kCount, ranks)) wire += encoded_bytes(*format, count);
        EXPECT_EQ(all, 2 * (p - 1) * wire) << label(options) << " " << ranks;
        EXPECT_NEAR(static_cast<double>(wire) * 8 / kCount, bits_per_element(options), 0.01) << label(options);
      } else if (family_of(options.method) == Family::kSparse) {
        EXPECT_EQ(all, p * (p - 1) * sparse_bytes(kCount, kept_elements(kCount, 0.05))) << label(options);
      } else if (options.method == Method::kPowerSgd) {
        const GroupLayout layout = layout_of(kCount);
        const uint64_t rows = layout.parts[0].rows, whole = kCount - 40 * rows;
        EXPECT_EQ(all, p * (dense_sum_bytes(4 * (2 * rows + whole), ranks) + dense_sum_bytes(4 * 2 * 40, ranks)));
      } else if (options.method == Method::kNone) {
        EXPECT_EQ(all, p * dense_sum_bytes(4 * kCount, ranks));
      } else {
        FAIL() << label(options) << " promises no number of bytes here";
      }
    }
  }
}

/// The same collectives by messages, whose bytes are counted where they are sent.
TEST(Exchange, ReportsWhatTravels) {
  constexpr size_t kCount = 70001;
  for (const CompressionOptions& options : all_options()) {
    if (options.method == Method::kNone || options.method == Method::kPowerSgd) continue;  // the communicator counts
    for (const int ranks : {2, 3, 4}) {
      std::atomic<uint64_t> reported = 0, counted = 0;
      run_as_threads(ranks, [&](World& world) {
        world.comm().impl().host_shared.reset();  // no meeting in memory
        const auto exchange = make_exchange(world.comm(), options, layout_of(kCount));
        std::vector<float> values = test_values(kCount, static_cast<uint64_t>(world.rank()));
        const uint64_t before = world.comm().traffic().bytes_sent;
        exchange->sum(values, 0);
        counted += world.comm().traffic().bytes_sent - before;
        reported += exchange->bytes_sent();
      });
      EXPECT_EQ(counted, reported) << label(options) << " " << ranks;
    }
  }
}

TEST(Exchange, WhatIsNotFiniteReachesAllRanksAndLeavesNothing) {
  for (const CompressionOptions& options : all_options()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      run_as_threads(3, [&](World& world) {
        const auto exchange = make_exchange(world.comm(), options, layout_of(1537));
        for (uint64_t step = 0; step < 3; ++step) {
          std::vector<float> values = test_values(1537, static_cast<uint64_t>(world.rank()), step);
          if (step == 1 && world.rank() == 1) values[300] = bad;
          exchange->sum(values, step);
          bool finite = true;
          for (const float value : values) finite = finite && std::isfinite(value);
          EXPECT_EQ(finite, step != 1) << label(options) << " step " << step;
        }
      });
    }
  }
}

TEST(Exchange, ZerosStayZero) {
  for (const CompressionOptions& options : all_options()) {
    run_as_threads(2, [&](World& world) {
      const auto exchange = make_exchange(world.comm(), options, layout_of(2000));
      for (uint64_t step = 0; step < 2; ++step) {
        std::vector<float> values(2000, 0.f);
        exchange->sum(values, step);
        for (const float value : values) ASSERT_EQ(value, 0.f) << label(options);
      }
      std::vector<float> values = test_values(2000, 1);  // and nothing is stuck afterwards
      exchange->sum(values, 2);
      double sum = 0;
      for (const float value : values) sum += std::fabs(value);
      EXPECT_GT(sum, 0) << label(options);
    });
  }
}

TEST(Exchange, EmptyGroupsAreAllowed) {
  for (const CompressionOptions& options : all_options()) {
    run_as_threads(2, [&](World& world) {
      std::vector<float> nothing;
      make_exchange(world.comm(), options, {"empty", 0, {}})->sum(nothing, 0);
    });
  }
}

TEST(Exchange, DgcGathersVelocity) {
  // One element in four is sent; the others gather u = m u + g: after n steps g, g (1 + (1 + m)), …
  CompressionOptions options;
  options.method = Method::kDgc;
  options.density = 0.25;
  options.momentum = 0.5;
  run_as_threads(2, [&](World& world) {
    const auto exchange = make_exchange(world.comm(), options, {"group", 4, {}});
    const std::vector<float> gradient = {8, 3, 0, 0};
    std::vector<float> first = gradient, second = gradient, third = gradient;
    exchange->sum(first, 0);
    exchange->sum(second, 1);
    exchange->sum(third, 2);
    EXPECT_EQ(first, (std::vector<float>{16, 0, 0, 0}));
    EXPECT_EQ(second, (std::vector<float>{16, 0, 0, 0}));         // 3 + 4.5 = 7.5 waits
    EXPECT_EQ(third, (std::vector<float>{0, 2 * 12.75f, 0, 0}));  // 7.5 + 5.25 goes before 8
  });
}

TEST(Exchange, DgcClipsItsFractionOfTheNorm) {
  CompressionOptions options;
  options.method = Method::kDgc;
  options.density = 1;
  options.momentum = 0;
  options.clip_norm = 2;
  run_as_threads(4, [&](World& world) {
    const auto exchange = make_exchange(world.comm(), options, {"group", 2, {}}, 0.25);
    std::vector<float> values = {30, 40};
    exchange->sum(values, 0);  // each rank's limit is 2 √(1/4 / 4) = 0.5
    EXPECT_FLOAT_EQ(values[0], 4 * 0.3f);
    EXPECT_FLOAT_EQ(values[1], 4 * 0.4f);
  });
}

TEST(Exchange, TernGradCutsOffOutliers) {
  CompressionOptions options;
  options.method = Method::kTernGrad;
  options.clip_deviations = 2.5;
  run_as_threads(1, [&](World& world) {
    std::vector<float> values(512, 1);
    values[9] = 1000;  // the deviation is 44.2 then
    const auto exchange = make_exchange(world.comm(), options, {"group", 512, {}});
    exchange->sum(values, 0);
    EXPECT_NEAR(values[9], 2.5 * std::sqrt((511 + 1e6) / 512), 0.1);
  });
}

TEST(Exchange, LowRankIsExactForAMatrixOfThatRank) {
  CompressionOptions options;
  options.method = Method::kPowerSgd;
  options.rank = 2;
  run_as_threads(2, [&](World& world) {
    constexpr size_t kRows = 30, kColumns = 50;
    const GroupLayout layout{"group", kRows * kColumns + 7, {{"m", 0, kRows, kColumns}}};
    const auto exchange = make_exchange(world.comm(), options, layout);
    std::vector<float> values(layout.count);
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kColumns; ++j) {
        values[i * kColumns + j] =
            std::sin(static_cast<float>(i)) * static_cast<float>(j) + std::cos(static_cast<float>(3 * i + 1));
      }
    }
    for (size_t i = 0; i < 7; ++i) values[kRows * kColumns + i] = static_cast<float>(i);
    const std::vector<float> gradient = values;
    exchange->sum(values, 0);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], 2 * gradient[i], 2e-3) << i;
  });
}

TEST(Exchange, LowRankFollowsGradientsOfAnySize) {
  // Of rank 1, from 1 down to 1e-24 and back up.
  run_as_threads(2, [&](World& world) {
    const auto exchange = make_exchange(world.comm(), {.method = Method::kPowerSgd, .rank = 1, .error_feedback = false},
                                        {"group", 600, {{"m", 0, 20, 30}}});
    for (uint64_t step = 0; step < 25; ++step) {
      std::vector<float> values(600);
      const auto turn = static_cast<float>(step);
      const float size = std::pow(10.f, step < 13 ? -2 * turn : turn - 25);
      for (size_t i = 0; i < 600; ++i) values[i] = size * static_cast<float>((1 + i / 30) * (1 + i % 30));
      const std::vector<float> gradient = values;
      exchange->sum(values, step);
      for (size_t i = 0; i < 600; ++i) ASSERT_NEAR(values[i] / gradient[i], 2, 1e-4) << size << " " << i;
    }
  });
}

// Of packed formats every rank gets its shard of the sum for half the bytes; what was sent and what is kept are
// together what was given.
TEST(Exchange, ShardsOfTheSum) {
  constexpr size_t kSteps = 4;
  for (CompressionOptions options : all_options()) {
    if (!block_format(options)) continue;
    if (feedback_of(options.method) == Feedback::kPossible) options.error_feedback = true;
    for (const std::vector<size_t>& shards : {std::vector<size_t>{1537}, {600, 0, 937}, {1, 1024, 512, 0, 0}}) {
      size_t count = 0;
      for (const size_t shard : shards) count += shard;
      GroupLayout layout = layout_of(count);
      layout.shards = shards;
      std::vector<std::vector<double>> sent(shards.size(), std::vector<double>(count)), given = sent;
      run_as_threads(static_cast<int>(shards.size()), [&](World& world) {
        const auto rank = static_cast<size_t>(world.rank());
        const auto exchange = make_exchange(world.comm(), options, layout);
        size_t first = 0, bytes = 0;
        for (size_t r = 0; r < shards.size(); ++r) {
          first += r < rank ? shards[r] : 0;
          bytes += r == rank ? 0 : encoded_bytes(*block_format(options), shards[r]);
        }
        for (size_t step = 0; step < kSteps; ++step) {
          std::vector<float> values = test_values(count, rank, step);
          for (size_t i = 0; i < count; ++i) given[rank][i] += values[i];
          exchange->sum(values, step);
          for (size_t i = first; i < first + shards[rank]; ++i) sent[rank][i] += values[i];
        }
        EXPECT_EQ(exchange->bytes_sent(), kSteps * bytes);
        StatePieces pieces;
        exchange->save(pieces);
        for (const StatePiece& piece : pieces) {
          for (const TensorPart& part : checked(layout).parts) {
            if (piece.name != "residual/" + part.name) continue;
            for (size_t i = 0; i < piece.values.size(); ++i)
              sent[rank][part.offset + piece.first + i] += piece.values[i];
          }
        }
      });
      for (size_t i = 0; i < count && keeps_residual(options); ++i) {
        double all_sent = 0, all_given = 0;
        for (size_t r = 0; r < shards.size(); ++r) {
          all_sent += sent[r][i];
          all_given += given[r][i];
        }
        ASSERT_NEAR(all_sent, all_given, 2e-6) << label(options) << " " << shards.size() << " ranks, " << i;
      }
    }
  }
}

// A checkpoint of ranks that all needed all has what owners kept of sums: it goes on with one of them.
TEST(Exchange, ShardsTakeOverWhatSumsHaveKept) {
  const CompressionOptions options{.method = Method::kInt8, .error_feedback = true};
  const Outcome before = run(2, options, 1537, 3);
  std::vector<double> kept(2);
  const auto total = [](const StatePieces& pieces) {
    double sum = 0;
    for (const StatePiece& piece : pieces) {
      for (const float value : piece.values) sum += value;
    }
    return sum;
  };
  run_as_threads(2, [&](World& world) {
    GroupLayout layout = layout_of(1537);
    layout.shards = {1000, 537};
    const auto exchange = make_exchange(world.comm(), options, layout);
    exchange->load(before.states);
    StatePieces pieces;
    exchange->save(pieces);
    kept[static_cast<size_t>(world.rank())] = total(pieces);
  });
  EXPECT_NEAR(kept[0] + kept[1], total(before.states[0]) + total(before.states[1]), 1e-5);
  EXPECT_NE(kept[0] + kept[1], 0);
}

TEST(Exchange, WarmUpIsDense) {
  CompressionOptions options;
  options.method = Method::kTopK;
  options.warmup_steps = 2;
  run_as_threads(2, [&](World& world) {
    const auto exchange = make_exchange(world.comm(), options, {"group", 1000, {}});
    for (uint64_t step = 0; step < 3; ++step) {
      std::vector<float> values(1000, 1.f);
      exchange->sum(values, step);
      EXPECT_EQ(std::count(values.begin(), values.end(), 2.f), step < 2 ? 1000 : 10);
    }
  });
}

}  // namespace
}  // namespace trireme
