// Asynchronous pipelines against their papers' update rules, computed one micro-batch after another on one worker:
//
//   PipeDream       stage s of n computes micro-batch m with the weights after max(0, m − (n − 1 − s)) updates,
//   vertical sync   all stages with those after max(0, m − (n − 1)),
//   2BW             all stages with those after max(0, ⌊m / k⌋ − 1), updated after every k micro-batches;
//
// forward and backward with the same weights, and each gradient changes the newest ones. A step begins with an empty
// pipeline and drains at its end. Not a bit may differ.
#include <ATen/autocast_mode.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "numerics/training.h"
#include "trireme/base/error.h"
#include "trireme/data/sample_stream.h"
#include "trireme/models/built_in.h"
#include "trireme/train/optimizer.h"
#include "trireme/train/step_inputs.h"

namespace trireme {
namespace {

constexpr int kPipeDreamSteps = 3;

struct UpdateRule {
  std::string schedule;
  int pp;
  int every;  ///< micro-batches of a replica in an update
  int dp = 1;
  std::string model = "mlp";
  std::string compute = "float32";

  /// The version that a stage uses for a micro-batch.
  int version(int stage, int micro_batch) const {
    switch (weight_rule(schedule_kind(schedule))) {
      case WeightRule::kStash:
        return std::max(0, micro_batch - (pp - 1 - stage));
      case WeightRule::kVerticalSync:
        return std::max(0, micro_batch - (pp - 1));
      case WeightRule::kDoubleBuffer:
        return std::max(0, micro_batch / every - 1);
      case WeightRule::kNewest:
        break;
    }
    throw Error(schedule + " is synchronous");
  }
};

/// Six layers, two a stage for three stages; a ResNet has ten.
std::vector<int> layers_of_stages(const UpdateRule& rule) {
  if (rule.model == "resnet") return {6, 4};
  return rule.pp == 3 ? std::vector{2, 2, 2} : std::vector{3, 3};
}

Config config_for(const UpdateRule& rule, const Words& more) {
  const int micro = rule.model == "resnet" ? 2 : 1;
  Words words = {"--train.clip=0",
                 fmt::format("--train.global_batch={}", 12 * micro),
                 "--train.leaves=12",
                 "--optimizer.warmup_steps=0",
                 "--optimizer.lr=0.0005",
                 "--precision.compute=" + rule.compute,
                 fmt::format("--parallel.pp={}", rule.pp),
                 fmt::format("--parallel.dp={}", rule.dp),
                 "--parallel.schedule=" + rule.schedule,
                 fmt::format("--parallel.split={}", fmt::join(layers_of_stages(rule), ",")),
                 fmt::format("--parallel.update_every={}", rule.every)};
  if (rule.model == "mlp") words.push_back("--model.layers=5");
  if (rule.model == "gpt2" || rule.model == "llama") {
    words.insert(words.end(), {"--model.layers=4", "--model.tied=false"});
  }
  words.insert(words.end(), more.begin(), more.end());
  return config_of(rule.model, words);
}

/// Weights of all entries, by the number of updates that they have had in this step.
using Versions = std::vector<std::vector<torch::Tensor>>;

class Reference {
 public:
  Reference(const Config& config, const UpdateRule& rule)
      : config_(config),
        rule_(rule),
        data_(open_data(data_options_of(config))),
        model_(make_model(config.model, static_cast<uint64_t>(config.train.seed))),
        compute_(rule.compute == "bfloat16" ? torch::kBFloat16 : torch::kFloat32),
        store_(*model_, compute_),
        optimizer_(config.optimizer, store_) {
    torch::set_num_threads(static_cast<int>(config.train.threads));
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const int layer = layer_of(entry.parameter);
      int stage = 0, end = 0;
      for (const int count : layers_of_stages(rule)) stage += layer >= (end += count);
      stage_of_.push_back(stage);
    }
  }

  /// Returns the mean loss of its micro-batches.
  double step(int number) {
    loss_sum_ = 0;
    const SampleStream stream(data_.train, static_cast<uint64_t>(config_.train.seed));
    const int count = static_cast<int>(config_.train.global_batch / config_.train.micro_batch);
    const int in_update = rule_.every * rule_.dp, num_updates = count / in_update;
    const double lr = learning_rate(config_.optimizer, number, config_.train.steps, 1);
    Versions versions{newest()};
    const torch::NoGradGuard no_grad;
    for (int update = 0; update < num_updates; ++update) {
      std::vector<std::vector<torch::Tensor>> gradients;
      for (int i = 0; i < in_update; ++i) {  // replica by replica
        const int own = update * rule_.every + i % rule_.every;
        set([&](size_t entry) { return versions[static_cast<size_t>(rule_.version(stage_of_[entry], own))][entry]; });
        gradients.push_back(gradients_of(stream, number * count + update * in_update + i));
      }
      set([&](size_t entry) { return versions[static_cast<size_t>(update)][entry]; });
      optimizer_.update([&](size_t entry) { return sum(gradients, 0, gradients.size(), entry); }, 1.0 / in_update, lr,
                        number * num_updates + update);
      versions.push_back(newest());
    }
    return loss_sum_ / count;
  }
  const ParameterStore& store() const { return store_; }

 private:
  /// Along the binary tree; of a power of two.
  static torch::Tensor sum(const std::vector<std::vector<torch::Tensor>>& gradients, size_t first, size_t last,
                           size_t entry) {
    if (last - first == 1) return gradients[first][entry];
    const size_t middle = (first + last) / 2;
    return sum(gradients, first, middle, entry) + sum(gradients, middle, last, entry);
  }
  std::vector<torch::Tensor> newest() const {
    std::vector<torch::Tensor> all;
    for (const ParameterStore::Entry& entry : store_.entries()) all.push_back(entry.master.clone());
    return all;
  }
  void set(const std::function<torch::Tensor(size_t)>& value) {
    for (size_t i = 0; i < store_.entries().size(); ++i) store_.entries()[i].master.copy_(value(i));
    store_.publish();
  }
  int layer_of(const torch::Tensor& parameter) const {
    for (size_t i = 0; i < model_->layers().size(); ++i) {
      for (const torch::Tensor& each : model_->layers()[i]->parameters()) {
        if (each.is_same(parameter)) return static_cast<int>(i);
      }
    }
    return -1;
  }
  std::vector<torch::Tensor> gradients_of(const SampleStream& stream, int64_t micro_batch) {
    const torch::AutoGradMode with_gradient(true);
    const int64_t size = config_.train.micro_batch;
    const Inputs inputs =
        tensors_of(std::make_shared<Batch>(stream.read(micro_batch * size, size)), data_.train->shape());
    std::vector<torch::Tensor> parameters;
    for (const ParameterStore::Entry& entry : store_.entries()) parameters.push_back(entry.parameter);
    model_->train();
    const bool mixed = compute_ != torch::kFloat32;
    at::autocast::set_autocast_enabled(torch::kCPU, mixed);
    at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_cache_enabled(!mixed);
    const torch::Tensor loss = model_->forward_loss(inputs.inputs, inputs.targets);
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    loss_sum_ += loss.item<double>();
    std::vector<torch::Tensor> gradients = torch::autograd::grad({loss}, parameters);
    for (torch::Tensor& gradient : gradients) gradient = gradient.to(torch::kFloat32);
    return gradients;
  }

  const Config config_;
  const UpdateRule rule_;
  const OpenedData data_;
  std::shared_ptr<Model> model_;
  const torch::ScalarType compute_;
  ParameterStore store_;
  Optimizer optimizer_;
  std::vector<int> stage_of_;
  double loss_sum_ = 0;
};

class PipeDream : public testing::TestWithParam<UpdateRule> {};

TEST_P(PipeDream, FollowsItsRuleToTheBit) {
  const UpdateRule& rule = GetParam();
  for (const Words& optimizer : {Words{"--optimizer.kind=sgd", "--optimizer.momentum=0.9", "--optimizer.lr=0.0005"},
                                 Words{"--optimizer.kind=adamw", "--optimizer.lr=0.0005"}}) {
    const Config config = config_for(rule, optimizer);
    SCOPED_TRACE(fmt::format("{} of {}, {}, {}", rule.schedule, rule.model, rule.compute, optimizer[0]));
    Reference reference(config, rule);
    std::vector<double> losses;
    for (int step = 0; step < kPipeDreamSteps; ++step) losses.push_back(reference.step(step));
    const Outcome outcome = train(config, rule.pp * rule.dp, kPipeDreamSteps);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(outcome.losses[i], losses[i], 1e-5 * losses[i]);
    for (const auto& [name, tensor] : outcome.state) {
      const int entry = reference.store().find(name);
      if (entry < 0) continue;  // of the optimizer
      EXPECT_TRUE(same_bits(tensor, reference.store().entries()[static_cast<size_t>(entry)].master)) << name;
    }
  }
}

TEST_P(PipeDream, IsAnotherRuleThanTheSynchronousOne) {
  const Config asynchronous = config_for(GetParam(), {});
  Config synchronous = asynchronous;
  synchronous.parallel.schedule = "1f1b";
  synchronous.parallel.update_every = 0;
  const int workers = GetParam().pp * GetParam().dp;
  const Outcome a = train(asynchronous, workers, 1), b = train(synchronous, workers, 1);
  EXPECT_FALSE(same_bits(a.state[0].second, b.state[0].second));
}

/// With old weights in the pipeline, training gets where it gets without: the held-out loss that tells classes apart.
TEST(PipeDreamTarget, IsReached) {
  constexpr double kTarget = 0.8;  // guesses have 2.3; all end between 0.37 and 0.57
  std::vector<UpdateRule> rules = {{"1f1b", 3, 0}};
  for (const ScheduleKind kind : schedule_kinds()) {
    if (is_synchronous(kind)) continue;
    const bool doubles = weight_rule(kind) == WeightRule::kDoubleBuffer;
    rules.push_back({std::string(name_of(kind)), doubles ? 2 : 3, doubles ? 3 : 1});
  }
  for (const UpdateRule& rule : rules) {
    const Config config = config_for(rule, {"--train.global_batch=48", "--train.micro_batch=4", "--train.steps=240",
                                            "--optimizer.kind=adamw", "--optimizer.lr=0.001", "--model.hidden=128"});
    EXPECT_GT(train(config, rule.pp, 0, /*evaluates=*/true).evaluation.loss, 2) << "before training";
    const Evaluation found = train(config, rule.pp, 240, /*evaluates=*/true).evaluation;
    EXPECT_GT(found.num_samples, 0);
    EXPECT_LT(found.loss, kTarget) << rule.schedule;
  }
}

std::vector<UpdateRule> all_rules() {
  std::vector<UpdateRule> rules = {{"pipedream-2bw", 2, 4},
                                   {"pipedream-vertical-sync", 3, 1, 2},
                                   {"pipedream", 3, 1, 1, "gpt2"},
                                   {"pipedream-vertical-sync", 3, 1, 1, "llama"},
                                   {"pipedream-2bw", 2, 4, 1, "gpt2", "bfloat16"},
                                   {"pipedream", 3, 1, 1, "mlp", "bfloat16"},
                                   {"pipedream", 2, 1, 1, "resnet"}};
  for (const ScheduleKind kind : schedule_kinds()) {
    if (is_synchronous(kind)) continue;
    const std::string name(name_of(kind));
    const bool doubles = weight_rule(kind) == WeightRule::kDoubleBuffer;
    rules.push_back({name, 2, doubles ? 2 : 1});
    rules.push_back({name, 3, doubles ? 4 : 1});
    rules.push_back({name, 2, doubles ? 2 : 1, 2});
  }
  return rules;
}

INSTANTIATE_TEST_SUITE_P(Rules, PipeDream, testing::ValuesIn(all_rules()));

TEST(PipeDream, WhatNeedsAllStagesAtOnceIsRefused) {
  const auto fails = [](const Words& words) {
    EXPECT_THROW(train(config_for({"pipedream", 2, 1}, words), 2, 1), UsageError) << words[0];
  };
  fails({"--train.clip=1"});
  fails({"--precision.compute=float16"});
  fails({"--train.on_nan=skip"});
  fails({"--parallel.schedule=1f1b"});  // with update_every
  const Config tied = config_of("gpt2", {"--train.clip=0", "--parallel.pp=2", "--parallel.dp=1",
                                         "--parallel.schedule=pipedream", "--optimizer.warmup_steps=0"});
  EXPECT_THROW(train(tied, 2, 1), UsageError);
}

}  // namespace
}  // namespace trireme
