// Tests that groups are summed in the background, that state survives a change of ranks, and that errors come out.
#include "trireme/compress/compressed_reducer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/compress/compress_test_util.h"

namespace trireme {
namespace {

std::vector<GroupLayout> groups() {
  return {{"late", 1537, {{"head", 0, 30, 40}, {"norm", 1200, 1, 300}}}, {"early", 700, {{"embedding", 0, 35, 20}}}};
}

std::vector<float> gradient(const GroupLayout& group, int rank, uint64_t step) {
  return test_values(group.count, static_cast<uint64_t>(rank) + group.count, step);
}

/// One step of both groups; the sums.
std::vector<std::vector<float>> step_of(CompressedReducer& reducer, Communicator& comm, uint64_t step) {
  std::vector<std::vector<float>> all;
  for (const GroupLayout& group : groups()) all.push_back(gradient(group, comm.rank(), step));
  for (size_t g = 0; g < all.size(); ++g) reducer.start(static_cast<int>(g), all[g], step);
  std::vector<float> beside = {1};  // the caller's communicator is free meanwhile
  comm.all_reduce(beside);
  EXPECT_EQ(beside[0], static_cast<float>(comm.size()));
  reducer.finish();
  return all;
}

TEST(CompressedReducer, SumsAsTheExchangesDo) {
  for (const CompressionOptions& options : all_options()) {
    run_as_threads(3, [&](World& world) {
      CompressedReducer reducer(world.comm(), options, groups());
      std::vector<std::unique_ptr<Exchange>> alone;
      for (const GroupLayout& group : groups()) {
        alone.push_back(make_exchange(world.comm(), options, group, static_cast<double>(group.count) / (1537 + 700)));
      }
      uint64_t bytes = 0;
      for (uint64_t step = 0; step < 3; ++step) {
        const auto sums = step_of(reducer, world.comm(), step);
        bytes = 0;
        for (size_t g = 0; g < sums.size(); ++g) {
          std::vector<float> expected = gradient(groups()[g], world.rank(), step);
          alone[g]->sum(expected, step);
          bytes += alone[g]->bytes_sent();
          EXPECT_EQ(bits_of(sums[g]), bits_of(expected)) << label(options) << " step " << step;
        }
      }
      EXPECT_EQ(reducer.report().bytes_sent, bytes);
      EXPECT_EQ(reducer.report().elements, 3 * (1537 + 700u));
      EXPECT_EQ(reducer.report().dense_bytes, 3 * (dense_sum_bytes(4 * 1537, 3) + dense_sum_bytes(4 * 700, 3)));
    });
  }
}

TEST(CompressedReducer, GoesOnWithTheSameBitsAfterALoad) {
  for (const CompressionOptions& options : all_options()) {
    std::vector<StatePieces> saved(3);
    std::vector<std::vector<std::vector<float>>> expected(3);
    run_as_threads(3, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      CompressedReducer reducer(world.comm(), options, groups());
      for (uint64_t step = 0; step < 2; ++step) step_of(reducer, world.comm(), step);
      saved[rank] = reducer.save();
      expected[rank] = step_of(reducer, world.comm(), 2);
    });
    run_as_threads(3, [&](World& world) {
      CompressedReducer reducer(world.comm(), options, groups());
      reducer.load(saved);
      EXPECT_EQ(step_of(reducer, world.comm(), 2), expected[static_cast<size_t>(world.rank())]) << label(options);
    });
  }
}

/// By name of a state: the sum of per-rank pieces, or the array itself.
std::map<std::string, std::vector<double>> totals(const std::vector<StatePieces>& by_rank) {
  std::map<std::string, std::vector<double>> all;
  for (const StatePieces& pieces : by_rank) {
    for (const StatePiece& piece : pieces) {
      std::vector<double>& total = all[piece.name];
      total.resize(piece.total);
      for (size_t i = 0; i < piece.values.size(); ++i) {
        double& value = total[piece.first + i];
        value = piece.kind == StateKind::kReplicated ? piece.values[i] : value + piece.values[i];
      }
    }
  }
  return all;
}

TEST(CompressedReducer, ResidualsKeepTheirSumWhenRanksChange) {
  for (const CompressionOptions& options : all_options()) {
    std::vector<StatePieces> before(4);
    run_as_threads(4, [&](World& world) {
      CompressedReducer reducer(world.comm(), options, groups());
      for (uint64_t step = 0; step < 2; ++step) step_of(reducer, world.comm(), step);
      before[static_cast<size_t>(world.rank())] = reducer.save();
    });
    for (const int ranks : {1, 2, 3, 5}) {
      std::vector<StatePieces> after(static_cast<size_t>(ranks));
      run_as_threads(ranks, [&](World& world) {
        // Also in another grouping: the names are what counts.
        const std::vector<GroupLayout> one = {
            {"all", 2300, {{"embedding", 0, 35, 20}, {"head", 704, 30, 40}, {"norm", 1904, 1, 300}}}};
        CompressedReducer reducer(world.comm(), options, one);
        reducer.load(before);
        after[static_cast<size_t>(world.rank())] = reducer.save();
      });
      const auto old_totals = totals(before), new_totals = totals(after);
      for (const auto& [name, total] : old_totals) {
        if (name.find("padding") != std::string::npos) continue;
        const std::vector<double>& now = new_totals.at(name);
        ASSERT_EQ(now.size(), total.size()) << name;
        for (size_t i = 0; i < total.size(); ++i) ASSERT_NEAR(now[i], total[i], 1e-6) << label(options) << " " << name;
      }
    }
  }
}

TEST(CompressedReducer, RefusesTheStateOfAnotherModel) {
  run_as_threads(1, [](World& world) {
    CompressedReducer reducer(world.comm(), {.method = Method::kTopK}, groups());
    const std::vector<StatePieces> other = {{{"residual/head", StateKind::kPerRank, 0, 7, std::vector<float>(7)}}};
    EXPECT_THROW(reducer.load(other), Error);
  });
}

TEST(CompressedReducer, RescalesWhatItKeeps) {
  for (const CompressionOptions& options : all_options()) {
    run_as_threads(2, [&](World& world) {
      CompressedReducer reducer(world.comm(), options, groups());
      step_of(reducer, world.comm(), 0);
      const StatePieces before = reducer.save();
      reducer.rescale(0.5f);
      const StatePieces after = reducer.save();
      ASSERT_EQ(before.size(), after.size());
      for (size_t i = 0; i < before.size(); ++i) {
        const float factor = before[i].kind == StateKind::kReplicated ? 1 : 0.5f;
        for (size_t j = 0; j < before[i].values.size(); ++j) {
          ASSERT_EQ(after[i].values[j], before[i].values[j] * factor) << before[i].name;
        }
      }
    });
  }
}

TEST(CompressedReducer, RefusesWhatDoesNotFit) {
  run_as_threads(1, [](World& world) {
    EXPECT_THROW(CompressedReducer(world.comm(), {.method = Method::kTopK, .density = 0}, groups()), UsageError);
    EXPECT_THROW(CompressedReducer(world.comm(), {}, {{"bad", 10, {{"a", 0, 1, 6}, {"b", 5, 1, 5}}}}), UsageError);
    EXPECT_THROW(CompressedReducer(world.comm(), {}, {{"bad", 10, {{"a", 0, 1, 11}}}}), UsageError);
    CompressedReducer reducer(world.comm(), {}, groups());
    std::vector<float> values(10);
    EXPECT_THROW(reducer.start(0, values, 0), UsageError);
    EXPECT_THROW(reducer.start(2, values, 0), UsageError);
    EXPECT_THROW(reducer.start(-1, values, 0), UsageError);
  });
}

TEST(CompressedReducer, AFailureComesOutOfFinishAndStays) {
  WorldOptions world_options;
  world_options.call_timeout = std::chrono::milliseconds(300);
  EXPECT_ANY_THROW(run_as_threads(
      2,
      [](World& world) {
        CompressedReducer reducer(world.comm(), {.method = Method::kTopK}, groups());
        if (world.rank() == 1) return;  // leaves the other alone
        std::vector<float> values(1537, 1.f), more(700, 1.f);
        reducer.start(0, values, 0);
        EXPECT_THROW(reducer.finish(), CommError);
        EXPECT_THROW(reducer.start(1, more, 0), CommError);
        EXPECT_THROW(reducer.finish(), CommError);
        throw CommError("seen", -1);
      },
      world_options));
}

}  // namespace
}  // namespace trireme
