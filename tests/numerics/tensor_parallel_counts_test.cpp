// What tensor parallelism moves, counted: no more than Megatron's pattern says, and nothing by accident.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "numerics/training.h"
#include "trireme/models/functions.h"
#include "trireme/parallel/tensor/recipes.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

constexpr int kRanks = 2, kBatch = 2;

struct Moved {
  MovementCounts forward, backward;  ///< what each added
};

MovementCounts difference(const MovementCounts& later, const MovementCounts& earlier) {
  MovementCounts result = later;
  for (size_t i = 0; i < result.calls.size(); ++i) {
    result.calls[i] -= earlier.calls[i];
    result.bytes[i] -= earlier.bytes[i];
  }
  result.inner_calls -= earlier.inner_calls;
  result.inner_bytes -= earlier.inner_bytes;
  result.started -= earlier.started;
  return result;
}

/// One forward and backward of a model of so many layers, on rank 0 of two.
Moved run(const std::string& kind, int layers, bool sequence) {
  Config config = config_of(kind, {fmt::format("--model.layers={}", layers), "--model.heads=4"});
  Moved moved;
  run_as_threads(kRanks, [&](World& world) {
    const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", kRanks}}));
    mesh->set_sequence_parallel(sequence);
    const auto model = make_model(config.model, 1);
    const LayoutRules rules = tensor_parallel_rules(config.model, kRanks);
    for (const auto& item : model->named_parameters()) {
      item.value().set_data(distribute(item.value(), mesh, placements_for(item.key(), rules, mesh->mesh())));
    }
    for (const TiedUse& tied : model->tied_uses()) {
      tied.use->set_data(model->named_parameters()[tied.parameter].detach());
    }
    const auto tokens = torch::arange(kBatch * config.model.seq).view({kBatch, config.model.seq}) % config.model.vocab;
    const MovementCounts before = mesh->counts();
    const auto loss = model->forward_loss({tokens}, {tokens});
    const MovementCounts between = mesh->counts();
    loss.backward();
    if (world.rank() != 0) return;
    moved = {difference(between, before), difference(mesh->counts(), between)};
  });
  return moved;
}

/// What one more layer adds.
Moved block(const std::string& kind, bool sequence) {
  const Moved three = run(kind, 3, sequence), two = run(kind, 2, sequence);
  return {difference(three.forward, two.forward), difference(three.backward, two.backward)};
}

class Block : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Block, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Block, CostsTwoSumsEachWay) {
  const Moved added = block(GetParam(), false);
  for (const MovementCounts& counts : {added.forward, added.backward}) {
    EXPECT_EQ(counts.calls_of(Movement::kAllReduce), 2);
    EXPECT_EQ(counts.calls_of(Movement::kAllGather), 0);
    EXPECT_EQ(counts.calls_of(Movement::kAllToAll), 0);
    EXPECT_EQ(counts.calls_of(Movement::kReduceScatter), 0);
    EXPECT_EQ(counts.inner_calls, 0);
  }
}

TEST_P(Block, WithSequencesCostsTwoPairsEachWay) {
  const Moved added = block(GetParam(), true);
  for (const MovementCounts& counts : {added.forward, added.backward}) {
    EXPECT_EQ(counts.calls_of(Movement::kAllGather), 2);
    EXPECT_EQ(counts.calls_of(Movement::kReduceScatter), 2);
    EXPECT_EQ(counts.calls_of(Movement::kAllReduce), 0);
    EXPECT_EQ(counts.calls_of(Movement::kAllToAll), 0);
    EXPECT_EQ(counts.inner_calls, 0);
  }
}

/// The gradients of the inputs of attention and MLP: [Note: In flight].
TEST_P(Block, SumsOfTheBackwardGoOnBesideProducts) {
  for (const bool sequence : {false, true}) {
    const Moved added = block(GetParam(), sequence);
    EXPECT_EQ(added.backward.started, 2);
    EXPECT_EQ(added.forward.started, 0);
  }
}

/// Rank 1 begins the backward of a layer only when rank 0 has the gradient of the weight, while its sum waits for rank
/// 1. Results are those of the steps one by one.
TEST(ColumnLinear, SumsItsInputsGradientMeanwhile) {
  run_as_threads(kRanks, [&](World& world) {
    at::set_num_threads(1);
    const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", kRanks}}));
    torch::manual_seed(5);
    const auto values = torch::randn({2, 6, 16}), weights = torch::randn({10, 16}), biases = torch::randn({10});
    const auto factors = torch::randn({2, 6, 10});
    for (const Placement& lies : {Placement::replicate(), Placement::shard(1)}) {
      const auto make = [&](const torch::Tensor& whole, const Placement& placement) {
        return distribute(whole, mesh, {placement}).requires_grad_(true);
      };
      const auto x = make(values, lies), w = make(weights, Placement::shard(0)), b = make(biases, Placement::shard(0));
      const auto factor = distribute(factors, mesh, {Placement::shard(2)});
      const auto input = x * 2;
      const auto y = ops::linear(input, w, b);
      std::vector<int64_t> token = {1};
      y.register_hook([&](const torch::Tensor& gradient) {
        if (world.rank() == 1) world.comm().recv(token, 0);
        return gradient;
      });
      w.register_hook([&](const torch::Tensor& gradient) {
        if (world.rank() == 0) world.comm().send(token, 1);
        return gradient;
      });
      const MovementCounts before = mesh->counts();
      (y * factor).sum().backward();
      EXPECT_EQ(difference(mesh->counts(), before).started, 1);

      const auto x2 = make(values, lies), w2 = make(weights, Placement::shard(0));
      const auto b2 = make(biases, Placement::shard(0));
      const auto gathered = local(redistribute(x2 * 2, {Placement::replicate()}), {Placement::partial()});
      const auto part = ops::linear(gathered, local(w2), local(b2));
      (from_local(part, mesh, {Placement::shard(2)}, {2, 6, 10}) * factor).sum().backward();
      EXPECT_TRUE(torch::equal(local_part(y), part));
      for (const auto& [a, c] : {std::pair(x, x2), std::pair(w, w2), std::pair(b, b2)}) {
        EXPECT_EQ(placements_of(a.grad()), placements_of(a));
        EXPECT_TRUE(torch::equal(local_part(a.grad()), local_part(redistribute(c.grad(), placements_of(a)))));
      }
    }
  });
}

TEST_P(Block, TheLossMovesThreeNumbersAToken) {
  const Moved moved = run(GetParam(), 1, false);
  const int64_t tokens = kBatch * config_of(GetParam()).model.seq;
  EXPECT_EQ(moved.forward.inner_calls, 2);
  EXPECT_EQ(moved.forward.inner_bytes, 3 * tokens * static_cast<int64_t>(sizeof(float)));
  EXPECT_EQ(moved.backward.inner_calls, 0);
  EXPECT_EQ(moved.forward.calls_of(Movement::kAllGather), 0) << "the logits or a weight were gathered";
  EXPECT_EQ(moved.backward.calls_of(Movement::kAllGather), 0);
}

}  // namespace
}  // namespace trireme
