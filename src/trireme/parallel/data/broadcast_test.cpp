#include "trireme/parallel/data/broadcast.h"

#include <gtest/gtest.h>

#include "trireme/parallel/data/data_parallel_test_util.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {
namespace {

TEST(Broadcast, MovesEveryTypeAndStride) {
  run_ranks(3, [](World& world) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt64,
                            torch::kInt16, torch::kUInt8, torch::kBool, torch::kComplexFloat}) {
      const torch::Tensor expected = random_values({5, 4}, 3).to(type);
      torch::Tensor tensor = world.rank() == 1 ? expected.clone() : torch::zeros({5, 4}, type);
      broadcast(world.comm(), tensor, 1);
      EXPECT_TRUE(torch::equal(tensor, expected)) << c10::toString(type);
    }
    torch::Tensor whole = torch::full({4, 6}, world.rank(), torch::kFloat32);
    broadcast(world.comm(), whole.t().narrow(0, 1, 2), 2);
    EXPECT_TRUE(torch::equal(
        whole[0], torch::tensor({world.rank(), 2, 2, world.rank(), world.rank(), world.rank()}, torch::kFloat32)));
    broadcast(world.comm(), torch::zeros({0, 3}));
    torch::Tensor scalar = torch::full({}, world.rank() + 1.0);
    broadcast(world.comm(), scalar);
    EXPECT_EQ(scalar.item<double>(), 1.0);
  });
}

TEST(AllReduce, EveryOperationInPlace) {
  run_ranks(3, [](World& world) {
    const auto own = [&] { return torch::full({2, 2}, world.rank() + 1.0f); };
    EXPECT_EQ(all_reduce(world.comm(), own()).sum().item<float>(), 24);
    EXPECT_EQ(all_reduce(world.comm(), own(), ReduceOp::kAverage).sum().item<float>(), 8);
    EXPECT_EQ(all_reduce(world.comm(), own(), ReduceOp::kMax).sum().item<float>(), 12);
    torch::Tensor column = torch::ones({3, 2});
    TensorHandle first = start_all_reduce(world.comm(), column.select(1, 0));
    TensorHandle second = start_all_reduce(world.comm(), torch::full({4}, world.rank(), torch::kInt64));
    EXPECT_EQ(second.wait().sum().item<int64_t>(), 12);
    first.wait();
    EXPECT_TRUE(first.test());
    EXPECT_TRUE(torch::equal(column[1], torch::tensor({3.0f, 1.0f}))) << "the other column is untouched";
    EXPECT_EQ(all_reduce(world.comm(), torch::zeros({0})).numel(), 0);
    EXPECT_THROW(all_reduce(world.comm(), torch::zeros({2}, torch::kBool)), UsageError);
  });
}

TEST(AllGather, RowsMayDifferInNumber) {
  run_ranks(3, [](World& world) {
    const torch::Tensor own = torch::full({world.rank(), 2}, world.rank(), torch::kInt64);
    const torch::Tensor all = all_gather(world.comm(), own);
    EXPECT_TRUE(torch::equal(all, torch::tensor({{1, 1}, {2, 2}, {2, 2}}, torch::kInt64)));
    EXPECT_EQ(all_gather(world.comm(), torch::zeros({0, 2})).sizes(), (std::vector<int64_t>{0, 2}));
    EXPECT_THROW(all_gather(world.comm(), torch::zeros({})), UsageError);
    try {
      all_gather(world.comm(), torch::zeros({1, world.rank() == 1 ? 3 : 2}));
      FAIL() << "rows of different lengths";
    } catch (const UsageError& error) {
      EXPECT_STREQ(
          error.what(),
          "the tensor of rank 1 differs from rank 0's: it has rows of [3] Float, rank 0 has rows of [2] Float\n"
          "  only dim 0 may differ between ranks");
    }
  });
}

TEST(SameOnAllRanks, FindsTheFirstDifferenceOfAnyRank) {
  run_ranks(4, [](World& world) {
    std::vector<std::string> lines{"a", "b", "c"};
    check_same_on_all_ranks(world.comm(), "list", lines, "");
    check_same_on_all_ranks(world.comm(), "list", {}, "");
    if (world.rank() == 1) lines.pop_back();
    if (world.rank() == 3) lines[1] = "x";
    try {
      check_same_on_all_ranks(world.comm(), "list", lines, "make it one");
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "the list of rank 3 differs from rank 0's: it has x, rank 0 has b\n  make it one");
    }
  });
}

TEST(BroadcastParameters, FromAnyRoot) {
  run_ranks(3, [](World& world) {
    ToyModel model(static_cast<uint64_t>(10 * world.rank()));
    broadcast_parameters(world.comm(), model, 2);
    const ToyModel expected(20);
    EXPECT_TRUE(equal(model.parameters(), expected.parameters()) && equal(model.buffers(), expected.buffers()));
    EXPECT_TRUE(model.first.requires_grad() && model.first.is_leaf());
  });
}

/// Ranks that join late, without state, make the same steps as the root from then on.
template <typename Optimizer, typename Options>
void check_optimizer(const Options& options) {
  run_ranks(3, [&](World& world) {
    ToyModel model(1);
    Options own = options;
    if (world.rank() != 1) own.lr(0.77);
    Optimizer optimizer(trained(model), own);
    const auto make_steps = [&](int first, int count) {
      for (int step = first; step < first + count; ++step) {
        optimizer.zero_grad();
        toy_loss(model, step).backward();
        optimizer.step();
      }
    };
    if (world.rank() == 1) make_steps(0, 3);
    if (world.rank() == 2) make_steps(7, 1);  // has other state, which must go
    broadcast_parameters(world.comm(), model, 1);
    broadcast_optimizer_state(world.comm(), optimizer, 1);
    make_steps(3, 3);

    ToyModel expected(1);
    Optimizer alone(trained(expected), options);
    for (int step = 0; step < 6; ++step) {
      alone.zero_grad();
      toy_loss(expected, step).backward();
      alone.step();
    }
    EXPECT_TRUE(equal(trained(model), trained(expected)));
  });
}

TEST(BroadcastOptimizerState, WorksWhereOthersHaveNone) {
  check_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
  check_optimizer<torch::optim::Adam>(torch::optim::AdamOptions(0.02).amsgrad(true));
  check_optimizer<torch::optim::AdamW>(torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

TEST(BroadcastOptimizerState, NeedsTheSameParameters) {
  run_ranks(2, [](World& world) {
    ToyModel model(1);
    std::vector<torch::Tensor> parameters = trained(model);
    if (world.rank() == 1) parameters.pop_back();
    torch::optim::SGD optimizer(parameters, 0.1);
    EXPECT_THROW(broadcast_optimizer_state(world.comm(), optimizer), UsageError);
  });
}

}  // namespace
}  // namespace trireme
