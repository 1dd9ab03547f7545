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
  return result;
}

/// One forward and backward of a model of so many layers, on rank 0 of two.
Moved run(const std::string& kind, int layers, bool sequence) {
  Config config = config_of(kind, {"--model.layers=" + std::to_string(layers), "--model.heads=4"});
  Moved moved;
  run_as_threads(kRanks, [&](World& world) {
    const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", kRanks}}));
    mesh->set_sequence_parallel(sequence);
    const auto model = make_model(config.model, 1);
    const LayoutRules rules = tensor_parallel_rules(config.model, kRanks);
    for (const auto& item : model->named_parameters()) {
      item.value().set_data(distribute(item.value(), mesh, placements_for(item.key(), rules, mesh->mesh())));
    }
    for (const SharedUse& shared : model->shared_uses()) {
      shared.use->set_data(model->named_parameters()[shared.parameter].detach());
    }
    const auto tokens = torch::arange(kBatch * config.model.seq).view({kBatch, config.model.seq}) % config.model.vocab;
    const MovementCounts before = mesh->counts();
    const auto loss = model->forward_loss(tokens, tokens);
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
