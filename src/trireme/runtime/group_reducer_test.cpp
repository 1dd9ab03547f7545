#include "trireme/runtime/group_reducer.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/program/data_parallel.h"

namespace trireme {
namespace {

constexpr int64_t kCount = 1003;

torch::Tensor leaf_values(int leaf) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(leaf));
  return torch::randn({kCount}, generator) * std::exp2(static_cast<float>(leaf % 7));
}

/// The tree of [Note: Reduction order] over leaves first … last-1, evaluated as it is written.
torch::Tensor sum_of_leaves(int first, int last) {
  if (last - first == 1) return leaf_values(first);
  const int split = first + static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
  return sum_of_leaves(first, split) + sum_of_leaves(split, last);
}

/// What a rank holds after its own leaves: the maximal branches in its range, and scratch behind them.
std::vector<torch::Tensor> partials_of(int num_leaves, int num_ranks, int rank) {
  const int count = num_leaves / num_ranks;
  const LeafSchedule schedule = schedule_leaves(num_leaves, {rank * count, (rank + 1) * count});
  std::vector<torch::Tensor> slots;
  for (const LeafRange& range : schedule.partials) slots.push_back(sum_of_leaves(range.first, range.last));
  while (static_cast<int>(slots.size()) < schedule.num_slots) slots.push_back(torch::full({kCount}, std::nanf("")));
  return slots;
}

struct Split {
  int num_leaves, num_ranks;
};

TEST(GroupReducer, WaitsForCompressedSumsOfSlowRanks) {
  run_as_threads(2, [](World& world) {
    const Program program = lower_data_parallel({2, 2, 2, 1}, world.rank());
    GroupReducer reducer(&world.comm(), program.across, torch::kFloat32);
    const auto count = static_cast<size_t>(kCount);
    reducer.set_compressor(std::make_unique<CompressedReducer>(
        world.comm(), CompressionOptions{.method = Method::kInt8}, std::vector<GroupLayout>{{"group", count, {}}}));
    torch::Tensor values = torch::full({kCount}, 1.f + static_cast<float>(world.rank()));
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    reducer.start(0, {values});
    EXPECT_TRUE(reducer.finish_first());
    EXPECT_TRUE(torch::allclose(values, torch::full({kCount}, 3.f), 0.02)) << values[0].item<float>();
    EXPECT_FALSE(reducer.finish_first());
  });
}

TEST(GroupReducer, SumsAlongTheTreeForEverySplit) {
  for (const auto [num_leaves, num_ranks] :
       {Split{24, 2}, {24, 3}, {24, 4}, {24, 6}, {12, 3}, {12, 4}, {6, 2}, {10, 2}, {7, 7}, {8, 4}, {5, 1}}) {
    const torch::Tensor expected = sum_of_leaves(0, num_leaves);
    run_as_threads(num_ranks, [&, leaves = num_leaves, ranks = num_ranks](World& world) {
      const Program program = lower_data_parallel({leaves, leaves, ranks, 2}, world.rank());
      GroupReducer reducer(&world.comm(), program.across, torch::kFloat32);
      std::vector<torch::Tensor> slots = partials_of(leaves, ranks, world.rank());
      std::vector<torch::Tensor> others = partials_of(leaves, ranks, world.rank());
      others[0] = others[0].clone();
      reducer.start(0, slots);
      reducer.start(1, others);
      reducer.finish();
      EXPECT_TRUE(torch::equal(slots[0], expected)) << leaves << " leaves, " << ranks << " ranks";
      EXPECT_TRUE(torch::equal(others[0], expected));
      EXPECT_GT(reducer.bytes_reduced(), 0u);
    });
  }
}

TEST(GroupReducer, ShortTypesTravelInHalfTheBytes) {
  run_as_threads(4, [](World& world) {
    for (const auto type : {torch::kBFloat16, torch::kFloat16}) {
      GroupReducer reducer(&world.comm(), CrossRankSum{}, type);
      for (int round = 0; round < 2; ++round) {
        torch::Tensor values = leaf_values(world.rank());
        reducer.start(3, {values});
        reducer.finish();
        EXPECT_EQ(reducer.bytes_reduced(), static_cast<size_t>(kCount * 2 * (round + 1)));
        const torch::Tensor expected = sum_of_leaves(0, 4);
        EXPECT_LT((values - expected).abs().max().item<float>(), expected.abs().max().item<float>() / 64);
      }
      torch::Tensor doubles = leaf_values(world.rank()).to(torch::kFloat64);
      reducer.start(0, {doubles});
      reducer.finish();
      EXPECT_LT((doubles - sum_of_leaves(0, 4)).abs().max().item<double>(), 1e-4) << "only float32 is shortened";
    }
  });
}

TEST(GroupReducer, HooksGetOneSumAndMayFinishAtOnce) {
  for (const auto [num_leaves, num_ranks] : {Split{8, 4}, {24, 2}}) {
    const torch::Tensor expected = sum_of_leaves(0, num_leaves);
    for (const bool at_once : {false, true}) {
      run_as_threads(num_ranks, [&, leaves = num_leaves, ranks = num_ranks](World& world) {
        const Program program = lower_data_parallel({leaves, leaves, ranks, 1}, world.rank());
        GroupReducer reducer(&world.comm(), program.across, torch::kFloat32);
        reducer.set_hook([&](int group, torch::Tensor values, Communicator& comm) {
          EXPECT_EQ(group, 5);
          if (!at_once) return comm.start_all_reduce(data_of(values));
          comm.all_reduce(data_of(values));
          return Handle();
        });
        std::vector<torch::Tensor> slots = partials_of(leaves, ranks, world.rank());
        reducer.start(5, slots);
        reducer.finish();
        EXPECT_LT((slots[0] - expected).abs().max().item<float>(), 1e-3) << leaves << " leaves";
      });
    }
  }
}

TEST(DataOf, RefusesWhatCannotTravel) {
  EXPECT_THROW(data_of(torch::zeros({2, 3}).t()), UsageError);
  EXPECT_THROW(data_of(torch::zeros({2}, torch::kComplexFloat)), UsageError);
  const torch::Tensor values = torch::zeros({2, 3}, torch::kInt64);
  EXPECT_EQ(data_of(values).count, 6u);
  EXPECT_EQ(data_of(values).num_bytes(), 48u);
}

}  // namespace
}  // namespace trireme
