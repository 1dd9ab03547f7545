#include "trireme/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include "trireme/optimizer/kernels.h"

namespace trireme {
namespace {

/// Two layers with a bias each: matrices and vectors.
torch::nn::Sequential make_layers() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(37, 19), torch::nn::Linear(19, 5));
}

struct Pair {
  OptimizerConfig ours;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)> theirs;
  double weight_decay = 0;
};

/// Largest difference of any weight after ten steps with the same gradients.
double difference_after_ten_steps(const Pair& pair, double factor = 1) {
  torch::nn::Sequential own = make_layers(), reference = make_layers();
  ParameterStore store(*own, torch::kFloat32);
  Optimizer optimizer(pair.ours, store);
  std::vector<torch::Tensor> matrices, vectors, all = reference->parameters();
  for (const torch::Tensor& parameter : all) (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups{{matrices}, {vectors}};
  const std::unique_ptr<torch::optim::Optimizer> theirs = pair.theirs(std::move(groups));
  torch::manual_seed(9);
  for (int64_t step = 0; step < 10; ++step) {
    std::vector<torch::Tensor> gradients;
    for (torch::Tensor& parameter : all) {
      gradients.push_back(torch::randn_like(parameter.detach()) * 0.1);
      parameter.mutable_grad() = gradients.back() * factor;
    }
    optimizer.update([&](size_t entry) { return gradients[entry]; }, factor, pair.ours.lr, step);
    theirs->step();
  }
  double largest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    largest = std::max(largest, (store.entries()[i].master - all[i]).abs().max().item<double>());
    EXPECT_GT((store.entries()[i].master - make_layers()->parameters()[i]).abs().max().item<double>(), 1e-3);
  }
  return largest;
}

template <typename Their, typename TheirOptions>
auto maker(TheirOptions options, double weight_decay, bool decays_vectors) {
  return [=](std::vector<torch::optim::OptimizerParamGroup> groups) -> std::unique_ptr<torch::optim::Optimizer> {
    for (size_t i = 0; i < groups.size(); ++i) {
      auto own = std::make_unique<TheirOptions>(options);
      own->weight_decay(i == 0 || decays_vectors ? weight_decay : 0);
      groups[i].set_options(std::move(own));
    }
    return std::make_unique<Their>(std::move(groups), options);
  };
}

OptimizerConfig config_of(OptimizerKind kind, double lr, double weight_decay, Decay decay) {
  OptimizerConfig config;
  config.kind = kind;
  config.lr = lr;
  config.weight_decay = weight_decay;
  config.decay = decay;
  return config;
}

TEST(Optimizer, AdamAndAdamWAreLibtorchs) {
  for (const Decay decay : {Decay::kMatrices, Decay::kAll}) {
    for (const double weight_decay : {0.0, 0.1}) {
      const bool all = decay == Decay::kAll;
      const OptimizerConfig adamw = config_of(OptimizerKind::kAdamW, 1e-2, weight_decay, decay);
      EXPECT_LT(difference_after_ten_steps(
                    {adamw, maker<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2), weight_decay, all)}),
                1e-6)
          << name_of(decay) << " " << weight_decay;
      const OptimizerConfig adam = config_of(OptimizerKind::kAdam, 1e-2, weight_decay, decay);
      EXPECT_LT(difference_after_ten_steps(
                    {adam, maker<torch::optim::Adam>(torch::optim::AdamOptions(1e-2), weight_decay, all)}),
                1e-6)
          << name_of(decay) << " " << weight_decay;
    }
  }
}

TEST(Optimizer, AdamTakesItsNumbersFromTheConfig) {
  OptimizerConfig config = config_of(OptimizerKind::kAdamW, 3e-3, 0.2, Decay::kAll);
  config.beta1 = 0.8;
  config.beta2 = 0.95;
  config.eps = 1e-4;
  const auto options = torch::optim::AdamWOptions(3e-3).betas({0.8, 0.95}).eps(1e-4);
  EXPECT_LT(difference_after_ten_steps({config, maker<torch::optim::AdamW>(options, 0.2, true)}), 1e-6);
}

TEST(Optimizer, MastersThatLieApartChangeNoBit) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    const OptimizerConfig config = config_of(OptimizerKind::kAdamW, 1e-2, 0.1, Decay::kAll);
    torch::nn::Sequential layers[] = {make_layers(), make_layers()};
    std::vector<std::unique_ptr<ParameterStore>> stores;
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (const bool on_host : {false, true}) {
      std::vector<ParameterGroups::Item> items;
      std::vector<FlatItem> flat;
      for (const auto& item : layers[on_host ? 1 : 0]->named_parameters()) {
        items.push_back({item.key(), item.value()});
        flat.push_back({.count = item.value().numel()});
      }
      stores.push_back(std::make_unique<ParameterStore>(
          std::vector{ParameterGroups{items, FlatLayout(flat, {})}}, type,
          ParameterSharding{.masters_on_host = on_host},
          [](const std::string&, const torch::Tensor& parameter) { return parameter.detach().clone(); }));
      optimizers.push_back(std::make_unique<Optimizer>(config, *stores.back()));
    }
    torch::manual_seed(9);
    for (int64_t step = 0; step < 3; ++step) {
      std::vector<torch::Tensor> gradients;
      for (const ParameterStore::Shard& shard : stores[0]->shards()) gradients.push_back(torch::randn({shard.count}));
      for (const auto& each : optimizers) each->update([&](size_t shard) { return gradients[shard]; }, 1, 1e-2, step);
    }
    const auto expected = layers[0]->parameters(), found = layers[1]->parameters();
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(expected[i].scalar_type(), found[i].scalar_type());
      EXPECT_TRUE(torch::equal(expected[i], found[i]));
      const ParameterStore::Shard& shard = stores[1]->shards()[i];
      EXPECT_TRUE(torch::equal(stores[0]->shards()[i].master, shard.master));
      EXPECT_NE(shard.master.data_ptr(), found[i].data_ptr()) << "the model has a copy";
      EXPECT_EQ(shard.compute.data_ptr(), found[i].data_ptr());
    }
    EXPECT_GT(stores[1]->num_bytes(), stores[0]->num_bytes());
  }
}

TEST(Optimizer, ThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  std::vector<torch::Tensor> found;
  for (const int each : {1, 2, 3}) {
    at::set_num_threads(each);
    torch::manual_seed(5);
    const torch::nn::Linear layer(777, 777);
    ParameterStore store(*layer, torch::kFloat32);
    Optimizer optimizer(config_of(OptimizerKind::kAdamW, 1e-2, 0.1, Decay::kAll), store);
    for (int64_t step = 0; step < 2; ++step) {
      optimizer.update([&](size_t shard) { return torch::randn({store.shards()[shard].count}); }, 1, 1e-2, step);
    }
    found.push_back(layer->weight.detach().clone());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(found[0], found[1]));
  EXPECT_TRUE(torch::equal(found[0], found[2]));
}

TEST(Optimizer, SgdIsLibtorchs) {
  for (const double momentum : {0.0, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      OptimizerConfig config = config_of(OptimizerKind::kSgd, 0.05, 1e-2, Decay::kMatrices);
      config.momentum = momentum;
      config.nesterov = nesterov;
      const auto options = torch::optim::SGDOptions(0.05).momentum(momentum).nesterov(nesterov);
      EXPECT_LT(difference_after_ten_steps({config, maker<torch::optim::SGD>(options, 1e-2, false)}), 1e-6)
          << momentum << " " << nesterov;
    }
  }
}

TEST(Optimizer, FactorIsAppliedToGradientsFirst) {
  const OptimizerConfig config = config_of(OptimizerKind::kAdam, 1e-2, 0.1, Decay::kAll);
  const auto theirs = maker<torch::optim::Adam>(torch::optim::AdamOptions(1e-2), 0.1, true);
  EXPECT_LT(difference_after_ten_steps({config, theirs}, 0.125), 1e-6);
}

TEST(Optimizer, StateIsNamedAndSized) {
  torch::nn::Sequential layers = make_layers();
  ParameterStore store(*layers, torch::kFloat32);
  const auto names = [&](const OptimizerConfig& config) {
    std::vector<std::string> all;
    for (const Optimizer::Kind& kind : Optimizer(config, store).state()) all.push_back(kind.name);
    return all;
  };
  OptimizerConfig sgd = config_of(OptimizerKind::kSgd, 0.1, 0, Decay::kAll);
  sgd.momentum = 0;
  EXPECT_TRUE(names(sgd).empty());
  EXPECT_EQ(Optimizer(sgd, store).num_bytes(), 0U);
  sgd.momentum = 0.9;
  EXPECT_EQ(names(sgd), std::vector<std::string>{"sgd.momentum"});
  const OptimizerConfig adam = config_of(OptimizerKind::kAdam, 0.1, 0, Decay::kAll);
  EXPECT_EQ(names(adam), (std::vector<std::string>{"adam.first", "adam.second"}));
  const Optimizer optimizer(adam, store);
  for (size_t i = 0; i < store.shards().size(); ++i) {
    EXPECT_EQ(optimizer.state()[1].of_shard(i).numel(), store.entries()[i].parameter.numel());
  }
}

OptimizerConfig schedule(LrSchedule kind, int64_t warmup) {
  OptimizerConfig config;
  config.lr = 2;
  config.schedule = kind;
  config.warmup_steps = warmup;
  config.min_lr = 0.1;
  return config;
}

TEST(LearningRate, RisesThenStays) {
  const OptimizerConfig config = schedule(LrSchedule::kConstant, 4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3, 100, 1), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 4, 100, 1), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 99, 100, 1), 2);
}

TEST(LearningRate, CosineAndLinearFallToTheirEnd) {
  for (const LrSchedule kind : {LrSchedule::kCosine, LrSchedule::kLinear}) {
    const std::string_view name = name_of(kind);
    const OptimizerConfig config = schedule(kind, 20);
    EXPECT_DOUBLE_EQ(learning_rate(config, 9, 100, 1), 1) << name;
    EXPECT_DOUBLE_EQ(learning_rate(config, 20, 100, 1), 2) << name;
    EXPECT_NEAR(learning_rate(config, 60, 100, 1), 1.1, 1e-12) << name;  // halfway between 2 and 0.2
    EXPECT_NEAR(learning_rate(config, 100, 100, 1), 0.2, 1e-12) << name;
    EXPECT_NEAR(learning_rate(config, 200, 100, 1), 0.2, 1e-12) << name;  // resumed beyond the end
    for (int64_t step = 20; step < 99; ++step) {
      EXPECT_GT(learning_rate(config, step, 100, 1), learning_rate(config, step + 1, 100, 1)) << name << step;
    }
  }
  EXPECT_NEAR(learning_rate(schedule(LrSchedule::kCosine, 20), 40, 100, 1), 0.2 + 1.8 * (1 + std::sqrt(0.5)) / 2,
              1e-12);
  EXPECT_NEAR(learning_rate(schedule(LrSchedule::kLinear, 20), 40, 100, 1), 2 - 1.8 / 4, 1e-12);
}

TEST(LearningRate, StepFalls) {
  OptimizerConfig config = schedule(LrSchedule::kStep, 0);
  config.step_every = 10;
  config.step_factor = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 100, 1), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 100, 1), 1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 35, 100, 1), 0.25);
}

TEST(LearningRate, ScalesWithReplicasOnRequest) {
  OptimizerConfig config = schedule(LrSchedule::kConstant, 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100, 4), 2);
  config.scale_lr = LrScaling::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100, 4), 8);
  config.scale_lr = LrScaling::kSqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 100, 4), 4);
}

TEST(SumOfSquares, IsTheNaiveSum) {
  constexpr size_t kBlock = 4096;
  EXPECT_EQ(sum_of_squares(nullptr, 0), 0);
  for (const size_t count : {size_t{1}, size_t{2}, size_t{15}, size_t{16}, size_t{17}, size_t{31}, kBlock - 1, kBlock,
                             kBlock + 1, 3 * kBlock, 7 * kBlock + 333}) {
    const torch::Tensor values = torch::randn({static_cast<int64_t>(count)});
    const float* v = values.const_data_ptr<float>();
    double naive = 0;
    for (size_t i = 0; i < count; ++i) naive += static_cast<double>(v[i]) * v[i];
    EXPECT_NEAR(sum_of_squares(v, count), naive, 1e-12 * naive) << count;
    for (size_t i = 0; i < count; i += std::max<size_t>(1, count / 7)) {  // every element counts
      torch::Tensor other = values.clone();
      other.mutable_data_ptr<float>()[i] += 100;
      EXPECT_GT(sum_of_squares(other.const_data_ptr<float>(), count), naive + 1000) << i << " of " << count;
    }
  }
}

/// As a tree of blocks does, wherever the blocks lie: sums of parts, cut at branches, add up to the same bits.
TEST(SumOfSquares, CutAtABranchOfItsTreeGivesTheSameBits) {
  constexpr size_t kBlock = 4096;
  const torch::Tensor values = torch::randn({11 * kBlock + 77});
  const float* v = values.const_data_ptr<float>();
  const auto count = static_cast<size_t>(values.numel());
  EXPECT_EQ(sum_of_squares(v, count),
            sum_of_squares(v, 8 * kBlock) + sum_of_squares(v + 8 * kBlock, count - 8 * kBlock));
  const double four = sum_of_squares(v, 4 * kBlock);
  EXPECT_EQ(four, (sum_of_squares(v, kBlock) + sum_of_squares(v + kBlock, kBlock)) +
                      sum_of_squares(v + 2 * kBlock, 2 * kBlock));
  // Where the array lies does not matter either.
  std::vector<float> moved(count + 3);
  std::copy(v, v + count, moved.begin() + 3);
  EXPECT_EQ(sum_of_squares(moved.data() + 3, count), sum_of_squares(v, count));
}

TEST(SumOfSquares, WhatIsNotFiniteShows) {
  std::vector<float> values(5000, 1.0f);
  values[4999] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(values.data(), values.size())));
  values[4999] = 3e38f;  // its square is beyond float32, not beyond the sum
  EXPECT_TRUE(std::isfinite(sum_of_squares(values.data(), values.size())));
}

}  // namespace
}  // namespace trireme
