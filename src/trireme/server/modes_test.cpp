// The modes beside the synchronous one, rows, norms, codecs and workers with a part of the model.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/optimizer/kernels.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

/// Σ over servers of what they have counted.
ShardStats stats_of(const Group& group) {
  ShardStats all;
  for (const auto& server : group.servers) {
    const ShardStats one = server->stats().shards;
    all.num_pushes += one.num_pushes;
    all.num_dropped += one.num_dropped;
    all.num_updates += one.num_updates;
    all.largest_lead = std::max(all.largest_lead, one.largest_lead);
    all.largest_staleness = std::max(all.largest_staleness, one.largest_staleness);
  }
  return all;
}

/// A convex task: every worker pulls, and pushes weight − target plus noise of its own.
double distance_after(Group& group, uint64_t num_steps, double lr, const std::function<void(int, uint64_t)>& before) {
  const size_t count = group.keys[0].count;
  const std::vector<float> target = random_values(count, 5);
  group.run([&](Worker& worker, int w) {
    std::vector<float> weight(count, 0.f), gradient(count);
    if (w == 0) worker.init(group.keys[0].name, weight).wait();
    for (uint64_t clock = 0; clock < num_steps; ++clock) {
      before(w, clock);
      worker.pull(group.keys[0].name, weight, {.clock = clock}).wait();
      for (size_t i = 0; i < count; ++i) gradient[i] = weight[i] - target[i];
      Pending push = worker.push(group.keys[0].name, gradient, {.clock = clock, .lr = lr});
      worker.finish_step(clock).wait();
      push.wait();
    }
  });
  Worker reader(group.worker_options(0));
  std::vector<float> weight(count);
  reader.pull(group.keys[0].name, weight, {.clock = 0}).wait();
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::pow(weight[i] - target[i], 2);
  reader.close();
  return std::sqrt(sum / static_cast<double>(count));
}

TEST(Asynchronous, Converges) {
  Group group;
  group.settings.mode = Mode::kAsynchronous;
  group.settings.num_workers = 3;
  group.settings.piece_elements = 4096;
  group.keys = {{"w", 10'007, 0, true}};
  group.start(2);
  EXPECT_LT(distance_after(group, 60, 0.1, [](int, uint64_t) {}), 1e-3);
  const ShardStats stats = stats_of(group);
  EXPECT_EQ(stats.num_pushes, 3u * 60 * 3);  // three pieces
  EXPECT_EQ(stats.num_updates, stats.num_pushes);
}

TEST(Bounded, ConvergesAndNobodyIsFurtherAheadThanTheBound) {
  for (const int64_t bound : {0, 1, 3}) {
    Group group;
    group.settings.mode = Mode::kBounded;
    group.settings.staleness_bound = bound;
    group.settings.num_workers = 4;
    group.settings.piece_elements = 4096;
    group.settings.replicate = bound == 1;
    group.keys = {{"w", 9'000, 0, true}};
    group.start(2);
    const auto watch = [](int w, uint64_t) {
      if (w == 3) std::this_thread::sleep_for(1ms);  // a slow one, that the others would run away from
    };
    EXPECT_LT(distance_after(group, 40, 0.08, watch), 1e-2) << bound;
    const ShardStats stats = stats_of(group);
    EXPECT_LE(stats.largest_lead, static_cast<uint64_t>(bound));
    EXPECT_EQ(stats.largest_lead > 0, bound > 0);
    // Between a pull and the push after it, every other worker can have pushed at most 2·bound + 1 times.
    EXPECT_LE(stats.largest_staleness, static_cast<uint64_t>(3 * (2 * bound + 1)));
  }
}

TEST(Bounded, APushBeyondTheBoundIsRefused) {
  Group group;
  group.settings.mode = Mode::kBounded;
  group.settings.staleness_bound = 1;
  group.settings.num_workers = 2;
  group.keys = {{"w", 10, 0, true}};
  group.start(1);
  Worker worker(group.worker_options(0));
  const std::vector<float> values(10, 1.f);
  std::vector<float> into(10);
  worker.init("w", values).wait();
  worker.push("w", values, {.clock = 1}).wait();
  try {
    worker.push("w", values, {.clock = 2}).wait();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the bound is 1"), std::string::npos) << error.what();
  }
  worker.push("w", values, {.clock = 1}).wait();  // the connection is as good as before
  try {
    worker.pull("w", into, {.clock = 2}).wait(1s);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("worker 1 has not joined"), std::string::npos) << error.what();
  }
}

TEST(Rows, TouchOnlyWhatIsNamedAndSumAlongTheTree) {
  constexpr size_t kWidth = 13, kRows = 2001;
  for (const int servers : {1, 3}) {
    Group group;
    group.settings.num_workers = 3;
    group.settings.piece_elements = 4096;
    group.settings.rule.kind = OptimizerKind::kAdamW;
    group.settings.rule.weight_decay = 0.1;
    group.settings.replicate = servers == 3;
    group.keys = {{"table", kRows * kWidth, kWidth, true}};
    group.start(servers);
    const auto rows_of = [](uint64_t clock, int w) {
      std::vector<int64_t> rows;
      for (uint64_t i = 0; i < 40; ++i)
        rows.push_back(static_cast<int64_t>(Philox(clock, "rows").below(60, i * 3 + static_cast<uint64_t>(w)) * 33));
      return rows;
    };
    // One machine: dense gradients along the tree, but updates of the named rows only.
    std::vector<float> weights = random_values(kRows * kWidth, 9), first(weights.size()), second(weights.size());
    for (uint64_t clock = 0; clock < 3; ++clock) {
      TreeSum sum(3, kWidth);
      for (int w = 0; w < 3; ++w) {
        const auto rows = rows_of(clock, w);
        const auto values = random_values(rows.size() * kWidth, clock * 10 + static_cast<uint64_t>(w));
        sum.add(sort_rows({w, w + 1}, {rows.begin(), rows.end()}, values.data(), kWidth));
      }
      const Partial& all = sum.finish();
      for (size_t i = 0; i < all.rows.size(); ++i) {
        const size_t at = all.rows[i] * kWidth;
        group.settings.rule.apply({.factor = 1, .lr = 0.01, .step = static_cast<int64_t>(clock)}, &weights[at],
                                  all.values.floats() + i * kWidth, &first[at], &second[at], kWidth);
      }
    }
    std::vector<std::vector<float>> got(3, std::vector<float>(weights.size()));
    group.run([&](Worker& worker, int w) {
      const std::vector<float> start = random_values(kRows * kWidth, 9);
      if (w == 1) worker.init("table", start).wait();
      for (uint64_t clock = 0; clock < 3; ++clock) {
        const auto rows = rows_of(clock, w);
        const auto values = random_values(rows.size() * kWidth, clock * 10 + static_cast<uint64_t>(w));
        std::vector<float> some(rows.size() * kWidth);
        worker.pull_rows("table", rows, some, {.clock = clock}).wait();
        if (clock == 0) {
          for (size_t i = 0; i < some.size(); ++i) {
            ASSERT_EQ(some[i], start[static_cast<size_t>(rows[i / kWidth]) * kWidth + i % kWidth]);
          }
        }
        worker.push_rows("table", rows, values, {.clock = clock, .lr = 0.01}).wait();
      }
      worker.pull("table", got[static_cast<size_t>(w)], {.clock = 3}).wait();
    });
    for (const auto& one : got) EXPECT_TRUE(one == weights);
  }
}

TEST(Commits, TheNormIsThatOfOneMachineAndSkippedStepsChangeNothing) {
  for (const bool replicate : {false, true}) {
    Group group;
    group.settings.num_workers = 2;
    group.settings.commits = true;
    group.settings.replicate = replicate;
    group.settings.piece_elements = 8192;
    group.settings.rule.kind = OptimizerKind::kAdamW;
    group.keys = {{"a", 30'001, 0, true}, {"b", 17, 0, true}};
    group.start(3);
    group.run([&](Worker& worker, int w) {
      Reference reference(group.settings, group.keys);
      Weights weights = reference.weights;
      if (w == 0) {
        for (const Key& key : group.keys) worker.init(key.name, weights[key.name]).wait();
      }
      for (uint64_t clock = 0; clock < 4; ++clock) {
        for (const Key& key : group.keys) {
          worker.pull(key.name, weights[key.name], {.clock = clock}).wait();
          const auto gradient = gradient_of(key, clock, w);
          worker.push(key.name, gradient, {.clock = clock}).wait();
        }
        const std::vector<double> squares = worker.squares(clock);
        double sum = 0;
        for (size_t k = 0; k < group.keys.size(); ++k) {
          const auto a = gradient_of(group.keys[k], clock, 0), b = gradient_of(group.keys[k], clock, 1);
          std::vector<float> both(a.size());
          for (size_t i = 0; i < a.size(); ++i) both[i] = a[i] + b[i];
          EXPECT_EQ(squares[k], sum_of_squares(both.data(), both.size()));
          sum += squares[k];
        }
        const double factor = 1 / std::sqrt(sum);
        const bool applies = clock != 2;
        worker.commit(clock, 0.01, factor, applies).wait();
        if (applies) reference.step(clock, 0.01, factor);
        for (const Key& key : group.keys) worker.pull(key.name, weights[key.name], {.clock = clock + 1}).wait();
        EXPECT_TRUE(weights == reference.weights) << clock;
      }
    });
  }
}

TEST(Codec, PacksGradientsOnTheirWay) {
  Group group;
  group.settings.num_workers = 2;
  group.settings.codec = 7;
  group.settings.replicate = true;
  group.settings.piece_elements = 4096;
  group.keys = {{"w", 9001, 0, true}};
  std::atomic<int> encoded{0};
  Codec signs{7,
              [&](const PushedPart&, std::span<const float> gradient) {
                ++encoded;
                std::vector<std::byte> bits((gradient.size() + 7) / 8);
                for (size_t i = 0; i < gradient.size(); ++i) {
                  if (gradient[i] < 0) bits[i / 8] |= std::byte(1 << (i % 8));
                }
                return bits;
              },
              [](const PushedPart&, std::span<const std::byte> packed, std::span<float> gradient) {
                if (packed.size() != (gradient.size() + 7) / 8) throw Error("wrong length");
                for (size_t i = 0; i < gradient.size(); ++i) {
                  gradient[i] = (packed[i / 8] & std::byte(1 << (i % 8))) != std::byte(0) ? -1.f : 1.f;
                }
              }};
  group.codecs = {signs};
  group.start(2);
  group.run([&](Worker& worker, int w) {
    std::vector<float> weight(9001, 0.f);
    if (w == 0) worker.init("w", weight).wait();
    worker.pull("w", weight).wait();
    const auto gradient = gradient_of(group.keys[0], 0, w);
    worker.push("w", gradient, {.clock = 0, .lr = 1}).wait();
    worker.pull("w", weight, {.clock = 1}).wait();
    const auto a = gradient_of(group.keys[0], 0, 0), b = gradient_of(group.keys[0], 0, 1);
    for (size_t i = 0; i < weight.size(); ++i) {
      ASSERT_EQ(weight[i], -((a[i] < 0 ? -1.f : 1.f) + (b[i] < 0 ? -1.f : 1.f)));
    }
    EXPECT_LT(worker.stats().bytes_sent, 9001u * 4 / 8 + (w == 0 ? 9001u * 4 : 0));
  });
  EXPECT_EQ(encoded.load(), 2 * 3);
}

TEST(Uses, AWorkerMayHaveOnlySomeOfTheKeys) {
  Group group;
  group.settings.num_workers = 4;  // the last uses none
  group.keys = {{"left", 50, 0, true}, {"right", 60, 0, true}, {"both", 70, 0, true}};
  group.start(2);
  using Names = std::vector<std::string>;
  const std::vector<std::optional<Names>> uses = {Names{"left", "both"}, Names{"right", "both"}, std::nullopt, Names{}};
  std::vector<std::string> errors(4);
  std::vector<std::jthread> threads;
  for (int w = 0; w < 4; ++w) {
    threads.emplace_back([&, w] {
      try {
        WorkerOptions options = group.worker_options(w);
        options.uses = uses[static_cast<size_t>(w)];
        Worker worker(options);
        if (w == 2) {
          for (const Key& key : group.keys) worker.init(key.name, std::vector<float>(key.count, 0.f)).wait();
        }
        for (uint64_t clock = 0; clock < 3; ++clock) {
          for (const Key& key : group.keys) {
            const bool used =
                !options.uses || std::find(options.uses->begin(), options.uses->end(), key.name) != options.uses->end();
            if (!used) continue;
            std::vector<float> weight(key.count);
            worker.pull(key.name, weight, {.clock = clock}).wait();
            const float each = key.name == "both" ? 3.f : 2.f;  // workers that use it, each pushes ones
            for (const float value : weight) EXPECT_EQ(value, -each * static_cast<float>(clock));
            worker.push(key.name, std::vector<float>(key.count, 1.f), {.clock = clock, .lr = 1}).wait();
          }
        }
        worker.close();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(w)] = error.what();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

TEST(Uses, ARoundEndsWhenALateWorkerSaysThatItDoesNotUseTheKey) {
  Group group;
  group.settings.num_workers = 2;
  group.keys = {{"used", 50, 0, true}, {"other", 60, 0, true}};
  group.start(1);
  Worker first(group.worker_options(0));
  for (const Key& key : group.keys) first.init(key.name, std::vector<float>(key.count, 0.f)).wait();
  first.push("used", std::vector<float>(50, 1.f), {.clock = 0, .lr = 1}).wait();
  WorkerOptions late = group.worker_options(1);
  late.uses = std::vector<std::string>{"other"};
  Worker second(late);
  std::vector<float> weight(50);
  first.pull("used", weight, {.clock = 1}).wait();
  EXPECT_EQ(weight, std::vector<float>(50, -1.f));
}

}  // namespace
}  // namespace trireme::server
