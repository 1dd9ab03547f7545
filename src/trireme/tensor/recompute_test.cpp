// What is computed again: the same values and gradients, hooks, random numbers and autocast included.
#include "trireme/tensor/recompute.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/base/error.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

torch::Tensor normal(at::IntArrayRef sizes, bool has_gradient = true) {
  return torch::randn(sizes).requires_grad_(has_gradient);
}

TEST(RecomputeFunction, GradientsHaveTheBitsOfAPlainCall) {
  torch::manual_seed(1);
  const auto weight = normal({7, 5}), x = normal({3, 5});
  const auto function = [&](const at::Tensor& y) { return (torch::linear(y, weight).relu() + y.sum(1, true)).tanh(); };
  for (const bool x_has_gradient : {true, false}) {
    std::vector<torch::Tensor> found[2];
    for (const bool again : {false, true}) {
      const auto input = x.detach().clone().requires_grad_(x_has_gradient);
      weight.mutable_grad().reset();
      const auto y = again ? recompute(function, input) : function(input);
      y.square().sum().backward();
      found[again] = {y.detach(), weight.grad().clone()};
      EXPECT_EQ(input.grad().defined(), x_has_gradient);
      if (x_has_gradient) found[again].push_back(input.grad());
    }
    for (size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(torch::equal(found[0][i], found[1][i])) << i;
  }
}

TEST(RecomputeFunction, IsCalledTwiceOnlyWhereGradientsAreWanted) {
  int calls = 0;
  const auto weight = normal({4});
  const auto function = [&](const at::Tensor& y) {
    ++calls;
    return y * weight;
  };
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(function, normal({4})).requires_grad());
  }
  EXPECT_EQ(calls, 1);
  recompute(function, normal({4})).sum().backward();
  EXPECT_EQ(calls, 3);
}

TEST(RecomputeFunction, TokensAreAnInputToo) {
  const auto table = normal({10, 3});
  const auto tokens = torch::randint(0, 10, {6}, torch::kInt64);
  recompute([&](const at::Tensor& t) { return torch::embedding(table, t); }, tokens).sum().backward();
  EXPECT_EQ(table.grad().sum().item<float>(), 18);
}

TEST(RecomputeFunction, Nests) {
  const auto weight = normal({5, 5}), x = normal({2, 5});
  const auto inner = [&](const at::Tensor& y) { return torch::linear(y, weight).tanh(); };
  recompute([&](const at::Tensor& y) { return recompute(inner, recompute(inner, y)) + y; }, x).sum().backward();
  const auto of_weight = weight.grad().clone(), of_x = x.grad().clone();
  weight.mutable_grad().reset();
  x.mutable_grad().reset();
  (inner(inner(x)) + x).sum().backward();
  EXPECT_TRUE(torch::allclose(of_weight, weight.grad()));
  EXPECT_TRUE(torch::allclose(of_x, x.grad()));
}

TEST(RecomputeFunction, SeesTheRandomNumbersAndTheAutocastOfItsFirstCall) {
  std::vector<uint64_t> steps;
  std::vector<torch::ScalarType> types;
  const auto weight = normal({4, 4}), x = normal({4, 4});
  torch::Tensor y;
  {
    const RandomScope scope({1, 42, 3});
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    y = recompute(
        [&](const at::Tensor& z) {
          const RandomContext* context = RandomScope::current();
          steps.push_back(context ? context->step : 0);
          const auto product = torch::mm(z, weight);
          types.push_back(product.scalar_type());
          return product;
        },
        x);
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  const RandomScope other({1, 7, 0});
  y.sum().backward();
  EXPECT_EQ(steps, (std::vector<uint64_t>{42, 42}));
  EXPECT_EQ(types, (std::vector<torch::ScalarType>{torch::kBFloat16, torch::kBFloat16}));
  EXPECT_EQ(RandomScope::current()->step, 7u);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(RecomputeFunction, WhatTheSecondCallThrowsComesOut) {
  int calls = 0;
  const auto y = recompute(
      [&](const at::Tensor& z) {
        if (++calls == 2) throw Error("no second time");
        return z * 2;
      },
      normal({3}));
  EXPECT_THROW(y.sum().backward(), Error);
}

TEST(RecomputeFunction, HasNoSecondDerivative) {
  const auto x = normal({3});
  const auto y = recompute([](const at::Tensor& z) { return z.square(); }, x).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), Error);
}

}  // namespace
}  // namespace trireme
