// What rounds tell before they are committed, workers that come too late for them, and rows that are summed as dense
// gradients are.
#include <gtest/gtest.h>

#include "trireme/optimizer/kernels.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

TEST(Rounds, WhoAsksForARoundThatIsPastIsTold) {
  Group group;
  group.settings.num_workers = 2;
  group.settings.commits = true;
  group.keys = {{"w", 100, 0, true}};
  group.start(1);
  Worker first(group.worker_options(0));
  auto second = std::make_unique<Worker>(group.worker_options(1));
  const std::vector<float> ones(100, 1.f);
  first.init("w", std::vector<float>(100, 0.f)).wait();
  for (uint64_t clock = 0; clock < 2; ++clock) {
    first.push("w", ones, {.clock = clock}).wait();
    second->push("w", ones, {.clock = clock}).wait();
    EXPECT_EQ(first.squares(clock), (std::vector<double>{400}));
    first.commit(clock, 1, 1).wait();
  }
  EXPECT_THROW(second->squares(0), Error);
  Pending late = second->push("w", ones, {.clock = 0});
  late.wait();
  EXPECT_EQ(late.num_dropped(), 1u);
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
        const int leaves_each = leaves / 3;
        const auto parts = schedule_leaves(leaves, {w * leaves_each, (w + 1) * leaves_each}).partials;
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
          const std::vector<double> squares = worker.squares(clock);
          if (w == 0) norms.push_back(squares[0]);
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
