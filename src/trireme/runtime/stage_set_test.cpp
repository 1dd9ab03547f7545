#include "trireme/runtime/stage_set.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

torch::Tensor leaf(at::IntArrayRef shape, float value = 1) { return torch::full(shape, value).set_requires_grad(true); }

struct Twice : torch::nn::Module {
  Twice()
      : own(register_module("own", torch::nn::Linear(3, 2))),
        again(register_parameter("again", own->weight)),
        frozen(register_parameter("frozen", torch::zeros({2}), /*requires_grad=*/false)) {}
  torch::nn::Linear own;
  torch::Tensor again, frozen;
};

TEST(StageSet, ListsEachTrainedParameterOnce) {
  Twice first, second;
  std::vector<GradientSource> sources;
  EXPECT_EQ(add_sources(sources, first, "0.", 4), std::nullopt);
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].name, "0.again");
  EXPECT_EQ(sources[1].name, "0.own.bias");
  EXPECT_EQ(sources[1].unit, 4);
  EXPECT_EQ(add_sources(sources, second, "1."), std::nullopt);
  EXPECT_EQ(sources.size(), 4u);
  EXPECT_EQ(add_sources(sources, *first.own, "2."), "2.weight") << "known from another layer";
  EXPECT_EQ(sources.size(), 4u);
}

TEST(StageSet, NamesSourcesOfDifferentDtypes) {
  const std::vector<GradientSource> sources = {{"a", leaf({2})},
                                               {"b", torch::zeros({2}, torch::kDouble).set_requires_grad(true)}};
  try {
    require_one_dtype(sources, "convert them");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "b [2] Double is of another type than a [2] Float\n  convert them");
  }
}

/// Two stages of a layer each. The weight of the first is used by the second, too, where it is `on_this_rank`.
struct TiedStages {
  explicit TiedStages(std::vector<int64_t> shape = {4, 3})
      : owner(leaf(shape, 2)), use(leaf(shape, 7)), other(leaf({5}, 3)) {}

  /// `rank`: of a pipeline of two stages; -1: both are here.
  StageSet held_by(int rank, StageSetOptions options, Communicator* shard_group = nullptr) {
    const bool shards = shard_group != nullptr && owner.dim() >= 2;
    if (shard_group) {
      options.gradients.num_shards = shard_group->size();
      options.gradients.own_shard = shard_group->rank();
    }
    std::vector<StageSources> stages;
    TiedParameter tied{.name = "owner", .stages = {0, 1}, .owner_rank = 0, .use_rank = rank < 0 ? 0 : 1};
    if (rank != 1) {
      tied.owner = {stages.size(), 0};
      stages.push_back({.number = 0, .layers = {0, 1}, .sources = {{"owner", owner, shards, true, 0}}});
    }
    if (rank != 0) {
      tied.use = {stages.size(), 1};
      stages.push_back({.number = 1,
                        .layers = {1, 2},
                        .sources = {{"other", other, false, false, 1}, {"use", use, shards, true, 1}}});
    }
    return {std::move(stages), {tied}, std::move(options)};
  }
  torch::Tensor owner, use, other;
};

FlatWeightsOptions flat(Communicator* shard_group = nullptr) {
  return {.sharding = {.shard_group = shard_group}, .value = [](const std::string& name, const torch::Tensor& leaf) {
            return torch::arange(leaf.numel(), torch::kFloat32).view(leaf.sizes()) + (name == "other" ? 100 : 0);
          }};
}

TEST(StageSet, ASecondUseOnTheSameRankIsTheSameMemory) {
  TiedStages tied;
  const StageSet set = tied.held_by(-1, {.weights = flat()});
  EXPECT_EQ(tied.use.data_ptr(), tied.owner.data_ptr());
  EXPECT_EQ(tied.owner[3][2].item<float>(), 11);
  EXPECT_EQ(set.parameters().find("use"), -1) << "the optimizer updates it once";
  for (const StageSet::Stage& stage : set.stages()) stage.gradients->begin(0, false);
  (2 * tied.owner.sum() + 3 * tied.use.sum() + tied.other.sum()).backward();
  for (const StageSet::Stage& stage : set.stages()) stage.gradients->end();
  const std::vector<TiedWeights::Tie> ties = set.ties();
  ASSERT_EQ(ties.size(), 1u);
  ties[0].owner->add_gradient(ties[0].use->gradient());
  EXPECT_TRUE(torch::equal(set.gradient_of({0, 0}), torch::full({4, 3}, 5.0f)));
  size_t all = 0;
  for (const StageSet::Stage& stage : set.stages()) all += stage.gradients->num_bytes();
  EXPECT_EQ(set.gradient_buffer_bytes(), 12 * sizeof(float)) << "the sum of the second use, until it is added";
  EXPECT_EQ(set.gradient_bytes(), all - 12 * sizeof(float));
}

TEST(StageSet, LeavesKeepTheirMemoryWithoutFlatWeights) {
  TiedStages tied;
  const void* const before = tied.owner.data_ptr();
  const StageSet set = tied.held_by(-1, {});
  EXPECT_FALSE(set.has_flat_weights());
  EXPECT_EQ(tied.owner.data_ptr(), before);
  EXPECT_EQ(tied.use[0][0].item<float>(), 7);
  set.ties()[0].use->take_weight(set.ties()[0].owner->weight());
  EXPECT_TRUE(torch::equal(tied.use, tied.owner));
  EXPECT_EQ(&set.stage_of_layer(1), &set.stage(1));
}

TEST(StageSet, ACopyOnAnotherRankBeginsAsTheOwner) {
  TiedStages tied;
  const StageSet set = tied.held_by(1, {.weights = flat()});
  EXPECT_EQ(tied.use[3][2].item<float>(), 11) << "initial values go by the owner's name";
  EXPECT_EQ(tied.other[4].item<float>(), 104);
  EXPECT_EQ(set.parameters().entries().size(), 1u);
}

TEST(StageSet, BothEndsOfATieAreShardedAlike) {
  for (const int ranks : {1, 2, 3}) {
    run_as_threads(ranks, [&](World& world) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{64, 33}, {40}}) {
        TiedStages at_owner(shape), at_use(shape);
        Communicator* const comm = &world.comm();
        const StageSet owner = at_owner.held_by(0, {.replicas = comm, .weights = flat(comm)}, comm);
        const StageSet use = at_use.held_by(1, {.replicas = comm, .weights = flat(comm)}, comm);
        const SourcePlace from{0, 0}, to{0, 1};
        EXPECT_EQ(owner.is_sharded(from), shape.size() == 2);
        EXPECT_EQ(use.is_sharded(to), owner.is_sharded(from)) << "vectors are whole at both ends";
        std::vector<int64_t> held = {owner.weight_of(from).numel()};
        EXPECT_EQ(use.weight_of(to).numel(), held[0]);
        EXPECT_TRUE(torch::equal(use.weight_of(to), owner.weight_of(from)));
        if (shape.size() == 1) continue;
        comm->all_reduce(held);
        EXPECT_EQ(held[0], 64 * 33) << "the shards are the whole";
        // What the owner sends is what the layer then computes with.
        use.ties()[0].use->take_weight(owner.ties()[0].owner->weight() * 2);
        use.before(1);
        EXPECT_EQ(at_use.use[63][32].item<float>(), 2 * (64 * 33 - 1));
      }
    });
  }
}

}  // namespace
}  // namespace trireme
