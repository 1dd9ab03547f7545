// Dropout masks belong to samples and steps, not to whoever draws them when.
#include "trireme/models/dropout.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/models/built_in.h"
#include "trireme/models/models_test_util.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

torch::Tensor dropped(const Dropout& dropout, const torch::Tensor& x, const RandomContext& context) {
  const RandomScope scope(context);
  return dropout.forward(x);
}

TEST(Dropout, MasksOfAStepAreTheSameHoweverItIsCut) {
  const Dropout dropout(0.3, "layers.0");
  const auto x = torch::ones({8, 3, 5});
  const auto whole = dropped(dropout, x, {7, 11, 0});
  for (const int64_t size : {1, 2, 4}) {
    std::vector<torch::Tensor> parts(static_cast<size_t>(8 / size));
    for (int64_t i = 8 / size - 1; i >= 0; --i) {  // in another order than that of the samples
      parts[static_cast<size_t>(i)] = dropped(dropout, x.narrow(0, 0, size), {7, 11, static_cast<uint64_t>(i)});
    }
    EXPECT_TRUE(torch::equal(torch::cat(parts), whole)) << "micro-batches of " << size;
  }
}

TEST(Dropout, SeedStepNameAndMicroBatchMatter) {
  const Dropout dropout(0.5, "a"), other(0.5, "b");
  const auto x = torch::ones({4, 64});
  const auto base = dropped(dropout, x, {1, 1, 1});
  EXPECT_TRUE(torch::equal(base, dropped(dropout, x, {1, 1, 1}))) << "a repeated forward draws the same";
  EXPECT_FALSE(torch::equal(base, dropped(dropout, x, {2, 1, 1})));
  EXPECT_FALSE(torch::equal(base, dropped(dropout, x, {1, 2, 1})));
  EXPECT_FALSE(torch::equal(base, dropped(dropout, x, {1, 1, 2})));
  EXPECT_FALSE(torch::equal(base, dropped(other, x, {1, 1, 1})));
}

TEST(Dropout, KeepsTheMeanAndTheGradient) {
  const Dropout dropout(0.25, "a");
  const auto x = torch::ones({100'000}).requires_grad_(true);
  const auto y = dropped(dropout, x, {});
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR((y == 0).to(torch::kFloat64).mean().item<double>(), 0.25, 0.01);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), y.detach()));
}

TEST(Dropout, DoesNothingInEvaluationOrAtZero) {
  Dropout zero(0, "a"), half(0.5, "b");
  const auto x = torch::ones({4});
  EXPECT_TRUE(zero.forward(x).is_same(x));
  half.eval();
  EXPECT_TRUE(half.forward(x).is_same(x));
}

TEST(Dropout, SaysThatNobodySetAScope) {
  const Dropout dropout(0.5, "layers.3.mlp_dropout");
  try {
    dropout.forward(torch::ones({1}));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "dropout of layers.3.mlp_dropout has no random numbers to draw from\n"
                 "  make a RandomScope before the forward, or call eval() on the model");
  }
}

TEST(Dropout, OfAModelIsTheSameOnEveryThread) {
  ModelConfig config = small_config(ModelKind::kGpt2);
  config.dropout = 0.2;
  const auto input = small_input(config, 2);
  const auto run = [&] {
    const RandomScope scope({1, 2, 3});
    return make_model(config, 1)->forward(input);
  };
  const auto here = run();
  torch::Tensor there;
  std::thread([&] { there = run(); }).join();
  EXPECT_TRUE(torch::equal(here, there));
  const RandomScope scope({1, 2, 4});
  EXPECT_FALSE(torch::equal(here, make_model(config, 1)->forward(input)));
}

TEST(RandomScope, NestsAndBelongsToItsThread) {
  EXPECT_EQ(RandomScope::current(), nullptr);
  {
    const RandomScope outer({1, 0, 0});
    {
      const RandomScope inner({2, 0, 0});
      EXPECT_EQ(RandomScope::current()->seed, 2u);
    }
    EXPECT_EQ(RandomScope::current()->seed, 1u);
    std::thread([] { EXPECT_EQ(RandomScope::current(), nullptr); }).join();
  }
  EXPECT_EQ(RandomScope::current(), nullptr);
}

}  // namespace
}  // namespace trireme
