// What rounds tell before they are committed, workers that come too late for them, and rows that are summed as dense
// gradients are.
#include <gtest/gtest.h>

#include "trireme/optimizer/kernels.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

TEST(Rounds, ValuesAreSummedAndUpdateNothing) {
  Group group;
  group.settings.num_workers = 3;
  group.settings.commits = true;
  group.settings.rule.kind = OptimizerKind::kAdamW;
  group.keys = {{"w", 100, 0, true}, {"loss", 2, 0, false, true}};
  group.start(2);
  group.run([&](Worker& worker, int w) {
    std::vector<float> weight(100, 0.f);
    const std::vector<float> ones(100, 1.f);
    worker.init("w", weight).wait();
    worker.init("loss", std::vector<float>(2, 0.f)).wait();
    for (uint64_t clock = 0; clock < 3; ++clock) {
      worker.push("w", ones, {.clock = clock}).wait();
      const std::vector<float> loss = {static_cast<float>(w), 0.25f};
      worker.push("loss", loss, {.clock = clock}).wait();
      const RoundSums sums = worker.sums(clock);
      EXPECT_FALSE(sums.is_gone);
      EXPECT_EQ(sums.squares, (std::vector<double>{900, 0}));
      EXPECT_EQ(sums.values[1], (std::vector<double>{3, 0.75}));
      worker.commit(clock, 0.1, 1, true, {sums.values[1][0], 5}).wait();
      worker.pull("w", weight, {.clock = clock + 1}).wait();
      std::vector<float> still(2);
      worker.pull("loss", still, {.clock = clock + 1}).wait();
      EXPECT_EQ(still, (std::vector<float>{0, 0}));
      const std::optional<Committed> end = worker.committed(clock);
      ASSERT_TRUE(end);
      EXPECT_EQ(end->notes, (std::vector<double>{3, 5}));
      EXPECT_EQ(end->lr, 0.1);
      EXPECT_TRUE(end->applies);
    }
    EXPECT_FALSE(worker.committed(99));
  });
}

TEST(Rounds, WhoComesLateIsToldAndFindsHowItEnded) {
  Group group;
  group.settings.num_workers = 3;
  group.settings.backup_workers = 1;
  group.settings.commits = true;
  group.keys = {{"w", 100, 0, true}, {"loss", 1, 0, false, true}};
  group.start(1);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < 3; ++w) workers.push_back(std::make_unique<Worker>(group.worker_options(w)));
  const std::vector<float> zeros(100, 0.f), ones(100, 1.f), one(1, 1.f);
  workers[0]->init("w", zeros).wait();
  workers[0]->init("loss", std::vector<float>(1, 0.f)).wait();
  for (uint64_t clock = 0; clock < 3; ++clock) {
    for (const int w : {0, 1}) {
      workers[static_cast<size_t>(w)]->push("w", ones, {.clock = clock}).wait();
      workers[static_cast<size_t>(w)]->push("loss", one, {.clock = clock}).wait();
    }
    const RoundSums sums = workers[0]->sums(clock);  // two of three, as if they were three
    EXPECT_DOUBLE_EQ(sums.values[1][0], 3);
    EXPECT_DOUBLE_EQ(sums.squares[0], 900);
    workers[static_cast<size_t>(clock % 2)]->commit(clock, 1, 1.0 / 3, true, {static_cast<double>(clock)}).wait();
  }
  Pending late = workers[2]->push("w", ones, {.clock = 0});
  late.wait();
  EXPECT_EQ(late.num_dropped(), 1u);
  EXPECT_TRUE(workers[2]->sums(0).is_gone);
  EXPECT_EQ(workers[2]->committed(0)->notes, (std::vector<double>{0}));
  EXPECT_EQ(workers[2]->committed(2)->notes, (std::vector<double>{2}));
  EXPECT_FALSE(workers[2]->committed(3));
  std::vector<float> weight(100);
  workers[2]->pull("w", weight, {.clock = 1}).wait();
  for (const float value : weight) ASSERT_FLOAT_EQ(value, -3.f);
  for (auto& worker : workers) worker->close();
}

/// Three groups of two, of which one may be late. Both workers of a group push to "w", the first of them the values.
TEST(Rounds, GroupsOfWorkersCountAsOne) {
  Group group;
  group.settings.num_workers = 6;
  group.settings.group_size = 2;
  group.settings.backup_workers = 1;
  group.settings.commits = true;
  group.keys = {{"w", 100, 0, true}, {"marks", 3, 0, false, true}};
  group.start(1);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < 6; ++w) {
    WorkerOptions options = group.worker_options(w);
    options.uses = {{"w"}};
    if (w % 2 == 0) options.uses->push_back("marks");
    workers.push_back(std::make_unique<Worker>(std::move(options)));
  }
  const std::vector<float> ones(100, 1.f);
  workers[0]->init("w", std::vector<float>(100, 0.f)).wait();
  workers[0]->init("marks", std::vector<float>(3, 0.f)).wait();
  const auto ask = [&](size_t w) {
    std::vector<float> mark(3, 0.f);
    mark[w / 2] = 1;
    workers[w]->push("marks", mark, {.clock = 0}).wait();
  };
  ask(4);
  ask(0);
  ask(2);  // too late
  std::vector<float> marks(3);
  workers[2]->pull("marks", marks, {.clock = 0, .part = Part::kSquares}).wait();  // though nobody has pushed "w"
  EXPECT_GT(marks[0], 0);
  EXPECT_EQ(marks[1], 0);
  EXPECT_GT(marks[2], 0);
  for (const size_t w : {0, 1, 4}) workers[w]->push("w", ones, {.clock = 0}).wait();
  EXPECT_EQ(workers[2]->stats().num_dropped, 1u);
  workers[5]->push("w", ones, {.clock = 0}).wait();            // the second group is whole now
  EXPECT_DOUBLE_EQ(workers[0]->sums(0).squares[0], 100 * 36);  // four of six, as if they were six
  workers[0]->commit(0, 1, 1, true).wait();
  workers[2]->pull("marks", marks, {.clock = 0, .part = Part::kSquares}).wait();
  EXPECT_EQ(workers[2]->stats().num_dropped, 1u);
  std::vector<float> weights(100);
  EXPECT_THROW(workers[2]->pull("w", weights, {.clock = 0, .part = Part::kSquares}).wait(), Error);
  for (auto& worker : workers) worker->close();
}

/// Each worker touches some rows; the others are zero in the dense gradient.
TEST(Rounds, RowsGiveTheSumsNormsAndWeightsOfDenseGradients) {
  constexpr size_t kWidth = 48, kRows = 700;
  for (const int leaves : {3, 12}) {
    const auto weights = [&](bool by_rows) {
      Group group;
      group.settings.num_workers = 3;
      group.settings.num_leaves = leaves;
      group.settings.commits = true;
      group.settings.piece_elements = 12288;  // whole rows and whole blocks of squares
      group.keys = {{"table", kRows * kWidth, by_rows ? kWidth : 0, true}};
      group.start(2);
      std::vector<float> end;
      std::vector<double> norms;
      group.run([&](Worker& worker, int w) {
        std::vector<float> table = random_values(kRows * kWidth, 1);
        worker.init("table", table).wait();
        const int share = leaves / 3;
        const auto parts = schedule_leaves(leaves, {w * share, (w + 1) * share}).partials;
        for (uint64_t clock = 0; clock < 3; ++clock) {
          std::vector<int64_t> rows;
          for (size_t row = static_cast<size_t>(w) + clock; row < kRows; row += 5 + static_cast<size_t>(w)) {
            rows.push_back(static_cast<int64_t>(row));
          }
          std::vector<std::vector<float>> dense, sparse;
          for (const LeafRange& part : parts) {
            sparse.push_back(random_values(rows.size() * kWidth, 100 * clock + static_cast<uint64_t>(part.first)));
            std::vector<float>& whole = dense.emplace_back(kRows * kWidth, 0.f);
            for (size_t i = 0; i < rows.size(); ++i) {
              std::copy_n(sparse.back().data() + i * kWidth, kWidth,
                          whole.data() + static_cast<size_t>(rows[i]) * kWidth);
            }
          }
          std::vector<PartialGradient> partials;
          for (size_t i = 0; i < parts.size(); ++i) partials.push_back({parts[i], by_rows ? sparse[i] : dense[i]});
          Pending push = by_rows ? worker.push_rows("table", rows, partials, {.clock = clock})
                                 : worker.push_partials("table", partials, {.clock = clock});
          push.wait();
          const RoundSums sums = worker.sums(clock);
          if (w == 0) norms.push_back(sums.squares[0]);
          worker.commit(clock, 0.1, 1).wait();
          worker.pull("table", table, {.clock = clock + 1}).wait();
        }
        if (w == 0) end = table;
      });
      return std::pair(end, norms);
    };
    const auto by_rows = weights(true), dense = weights(false);
    EXPECT_EQ(by_rows.second, dense.second) << leaves;
    EXPECT_TRUE(by_rows.first == dense.first) << leaves;
  }
}

}  // namespace
}  // namespace trireme::server
