// Asynchronous schedules in a Pipeline against their rules, computed one micro-batch after another on one rank: which
// version of its weights a stage uses for a micro-batch (tests/numerics/pipedream_test.cpp writes the rules down, for
// the trainer). The layers are libtorch's own, whose graphs keep views of their weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/pipeline_test_util.h"

namespace trireme {
namespace {

constexpr int kPipeDreamSteps = 3;
constexpr int64_t kSamples = 2;

struct UpdateRule {
  std::string schedule;
  int ranks;
  int micro_batches;  ///< of a replica
  int every = 1;
  int replicas = 1;
  bool recompute = false;

  int version(int stage, int micro_batch) const {
    switch (weight_rule(schedule_kind(schedule))) {
      case WeightRule::kStash:
        return std::max(0, micro_batch - (ranks - 1 - stage));
      case WeightRule::kVerticalSync:
        return std::max(0, micro_batch - (ranks - 1));
      case WeightRule::kDoubleBuffer:
        return std::max(0, micro_batch / every - 1);
      case WeightRule::kNewest:
        break;
    }
    throw Error(schedule + " is synchronous");
  }
  PipelineOptions options() const {
    return {.schedule = schedule,
            .num_micro_batches = micro_batches,
            .num_replicas = replicas,
            .update_every = every,
            .split = ranks == 2 ? "5,7" : "3,4,5",
            .recompute = {recompute}};
  }
};

int stage_of(const UpdateRule& rule, const std::string& parameter) {
  const int layer = std::stoi(parameter);
  if (rule.ranks == 2) return layer >= 5;
  return (layer >= 3) + (layer >= 7);
}

/// The part of a micro-batch of one replica.
torch::Tensor part_of(const UpdateRule& rule, const torch::Tensor& batch, int replica, int own) {
  return batch.narrow(0, (replica * rule.micro_batches + own) * kSamples, kSamples);
}

Weights follow(const UpdateRule& rule) {
  at::set_num_threads(1);
  torch::nn::Sequential model = small_model();
  const auto named = model->named_parameters();
  const auto parameters = model->parameters();
  auto optimizer = optimizer_of(parameters);
  const int in_update = rule.every * rule.replicas, count = rule.micro_batches * rule.replicas;
  Weights result;
  const auto newest = [&] {
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& parameter : parameters) all.push_back(parameter.detach().clone());
    return all;
  };
  for (int step = 0; step < kPipeDreamSteps; ++step) {
    const Batch batch = batch_of(step, kSamples * count);
    std::vector<std::vector<torch::Tensor>> versions{newest()};
    const auto set = [&](const std::function<int(size_t)>& version) {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].copy_(versions[static_cast<size_t>(version(i))][i]);
      }
    };
    double sum = 0;
    for (int update = 0; update < rule.micro_batches / rule.every; ++update) {
      std::vector<std::vector<torch::Tensor>> gradients(parameters.size());
      for (int i = 0; i < in_update; ++i) {  // replica by replica
        const int replica = i / rule.every, own = update * rule.every + i % rule.every;
        set([&](size_t p) { return rule.version(stage_of(rule, named[p].key()), own); });
        const torch::Tensor loss = loss_of(model->forward(part_of(rule, batch.input, replica, own)),
                                           part_of(rule, batch.target, replica, own));
        sum += (loss / count).item<double>();
        const auto own_gradients = torch::autograd::grad({loss / in_update}, parameters, {}, false, false, true);
        for (size_t p = 0; p < parameters.size(); ++p) {
          gradients[p].push_back(own_gradients[p].defined() ? own_gradients[p] : torch::zeros_like(parameters[p]));
        }
      }
      set([&](size_t) { return update; });
      for (size_t p = 0; p < parameters.size(); ++p) parameters[p].mutable_grad() = sum_leaves(gradients[p]);
      optimizer.step();
      versions.push_back(newest());
    }
    result.losses.push_back(sum);
  }
  for (const auto& item : named) result.values[item.key()] = item.value().detach().clone();
  return result;
}

/// All ranks' weights, and the losses.
Weights train(const UpdateRule& rule) {
  const int num_ranks = rule.ranks * rule.replicas;
  std::vector<torch::nn::Sequential> models;
  for (int rank = 0; rank < num_ranks; ++rank) models.push_back(small_model());
  std::vector<Weights> found(static_cast<size_t>(num_ranks));
  run_as_threads(num_ranks, [&](World& world) {
    at::set_num_threads(1);
    Weights& own = found[static_cast<size_t>(world.rank())];
    Pipeline pipeline(world.comm(), models[static_cast<size_t>(world.rank())], rule.options());
    auto optimizer = optimizer_of(pipeline.parameters());
    const int64_t batch_part = kSamples * rule.micro_batches;
    for (int step = 0; step < kPipeDreamSteps; ++step) {
      const Batch batch = batch_of(step, batch_part * rule.replicas);
      own.losses.push_back(pipeline.step(batch.input.narrow(0, pipeline.replica() * batch_part, batch_part),
                                         batch.target.narrow(0, pipeline.replica() * batch_part, batch_part), loss_of,
                                         [&] { optimizer.step(); }));
    }
    for (const auto& [name, parameter] : pipeline.named_parameters()) own.values[name] = parameter.detach().clone();
  });
  Weights all;
  all.losses = found[0].losses;
  for (const Weights& own : found) {
    EXPECT_EQ(own.losses, all.losses);
    for (const auto& [name, value] : own.values) {
      const auto [first, is_new] = all.values.try_emplace(name, value);
      EXPECT_TRUE(is_new || at::equal(first->second, value)) << name;
    }
  }
  return all;
}

/// The same micro-batches in one step, which a test has room for, and in a stream: losses and weights.
Weights train_once(const UpdateRule& rule, bool as_stream) {
  const int num_ranks = rule.ranks * rule.replicas;
  std::vector<torch::nn::Sequential> models;
  for (int rank = 0; rank < num_ranks; ++rank) models.push_back(small_model());
  Weights all;
  std::mutex mutex;
  run_as_threads(num_ranks, [&](World& world) {
    at::set_num_threads(1);
    Pipeline pipeline(world.comm(), models[static_cast<size_t>(world.rank())], rule.options());
    auto optimizer = optimizer_of(pipeline.parameters());
    const auto update = [&] { optimizer.step(); };
    const int64_t batch_part = kSamples * rule.micro_batches;
    const Batch batch = batch_of(0, batch_part * rule.replicas);
    const auto own = [&](const torch::Tensor& whole) {
      return whole.narrow(0, pipeline.replica() * batch_part, batch_part);
    };
    std::vector<int64_t> asked;
    const auto samples = [&](const torch::Tensor& whole) {
      return [&asked, part = own(whole)](int64_t micro_batch) {
        asked.push_back(micro_batch);
        return part.narrow(0, micro_batch * kSamples, kSamples);
      };
    };
    const double loss =
        as_stream ? pipeline.stream(rule.micro_batches, samples(batch.input), samples(batch.target), loss_of, update)
                  : pipeline.step(own(batch.input), own(batch.target), loss_of, update);
    if (as_stream && !rule.recompute && pipeline.has_first_stage() && !pipeline.has_last_stage()) {
      EXPECT_EQ(asked.size(), size_t(rule.micro_batches));
      EXPECT_TRUE(std::is_sorted(asked.begin(), asked.end()));
    }
    const std::lock_guard lock(mutex);
    all.losses = {loss};
    for (const auto& [name, parameter] : pipeline.named_parameters()) all.values[name] = parameter.detach().clone();
  });
  return all;
}

class PipelineStream : public testing::TestWithParam<UpdateRule> {};

TEST_P(PipelineStream, HasTheBitsOfOneLongStep) {
  const Weights expected = train_once(GetParam(), false), found = train_once(GetParam(), true);
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (const auto& [name, value] : expected.values) EXPECT_TRUE(at::equal(found.values.at(name), value)) << name;
  EXPECT_NEAR(found.losses[0], expected.losses[0], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Rules, PipelineStream,
                         testing::Values(UpdateRule{"pipedream", 2, 24}, UpdateRule{"pipedream", 3, 40},
                                         UpdateRule{"pipedream", 2, 24, 2, 2},
                                         UpdateRule{"pipedream", 3, 24, 1, 1, true},
                                         UpdateRule{"pipedream-vertical-sync", 3, 24},
                                         UpdateRule{"pipedream-2bw", 2, 24, 4}, UpdateRule{"pipedream-2bw", 3, 27, 3}));

TEST(PipelineStreams, SayHowLongTheyCanBe) {
  std::vector<torch::nn::Sequential> models;
  for (int i = 0; i < 4; ++i) models.push_back(small_model());
  run_as_threads(2, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Pipeline pipeline(world.comm(), models[rank], {.schedule = "pipedream-2bw", .num_micro_batches = 8});
    auto optimizer = optimizer_of(pipeline.parameters());
    const auto none = [](int64_t) { return torch::Tensor(); };
    try {
      pipeline.stream(13, none, none, loss_of, [&] { optimizer.step(); });
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("a stream of pipedream-2bw cannot have 13 micro-batches"));
      EXPECT_THAT(error.what(), testing::HasSubstr("any multiple of 2 more"));
    }
    Pipeline synchronous(world.comm(), models[rank + 2], {.schedule = "1f1b", .num_micro_batches = 4});
    EXPECT_THROW(synchronous.stream(64, none, none, loss_of, [] {}), UsageError);
  });
}

class PipelineDream : public testing::TestWithParam<UpdateRule> {};

TEST_P(PipelineDream, FollowsItsRuleToTheBit) {
  const Weights expected = follow(GetParam()), found = train(GetParam());
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (const auto& [name, value] : expected.values) EXPECT_TRUE(at::equal(found.values.at(name), value)) << name;
  for (size_t i = 0; i < expected.losses.size(); ++i) EXPECT_DOUBLE_EQ(found.losses[i], expected.losses[i]);
}

std::vector<UpdateRule> all_rules() {
  std::vector<UpdateRule> rules = {{"pipedream", 3, 2}, {"pipedream-2bw", 2, 8, 4, 1, true}};
  for (const ScheduleKind kind : schedule_kinds()) {
    if (is_synchronous(kind)) continue;
    const std::string name(name_of(kind));
    const bool doubles = weight_rule(kind) == WeightRule::kDoubleBuffer;
    for (const int ranks : {2, 3}) {
      const int every = doubles ? ranks : 1, micro_batches = doubles ? 4 * ranks : 6;
      rules.push_back({name, ranks, micro_batches, every});
      rules.push_back({name, ranks, micro_batches, every, 2});
      rules.push_back({name, ranks, micro_batches, every, 1, true});
    }
  }
  return rules;
}

INSTANTIATE_TEST_SUITE_P(Rules, PipelineDream, testing::ValuesIn(all_rules()));

TEST(PipelineDream, AnotherRuleGivesOtherWeights) {
  const Weights stash = train({"pipedream", 3, 6}), sync = train({"pipedream-vertical-sync", 3, 6});
  EXPECT_FALSE(at::equal(stash.values.at("4.weight"), sync.values.at("4.weight")));
}

TEST(PipelineDream, SynchronousSchedulesCallTheOptimizerOnce) {
  torch::nn::Sequential model = small_model();
  run_as_threads(1, [&](World& world) {
    at::set_num_threads(1);
    Pipeline pipeline(world.comm(), model, {.num_micro_batches = 4});
    const Batch batch = batch_of(0, 8);
    int calls = 0;
    pipeline.step(batch.input, batch.target, loss_of, [&] {
      ++calls;
      EXPECT_TRUE(pipeline.parameters()[0].grad().defined());
    });
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(pipeline.parameters()[0].grad().defined());
  });
}

TEST(PipelineDream, AStepWithoutItsUpdateIsRefused) {
  torch::nn::Sequential model = small_model();
  run_as_threads(1, [&](World& world) {
    Pipeline pipeline(world.comm(), model, {.schedule = "pipedream", .num_micro_batches = 4});
    const Batch batch = batch_of(0, 8);
    EXPECT_THROW(pipeline.step(batch.input, batch.target, loss_of), UsageError);
  });
}

}  // namespace
}  // namespace trireme
