// The operators of models/functions.h against their definitions, in double; functions_kernels_test.cpp has the kernels.
#include "trireme/models/functions.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

namespace trireme {
namespace {

/// Head by head, with an explicit mask.
torch::Tensor attention_by_definition(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  const int64_t seq = q.size(1), heads = q.size(2), uses = heads / k.size(2);
  const auto future = torch::ones({seq, seq}, torch::kBool).triu(1);
  std::vector<torch::Tensor> out;
  for (int64_t head = 0; head < heads; ++head) {
    const auto of = [&](const torch::Tensor& x, int64_t i) { return x.select(2, i).to(torch::kFloat64); };
    const auto scores = of(q, head).matmul(of(k, head / uses).transpose(1, 2)) / std::sqrt(q.size(3));
    out.push_back(scores.masked_fill(future, -INFINITY).softmax(-1).matmul(of(v, head / uses)));
  }
  return torch::cat(out, -1);
}

TEST(Functions, CausalAttentionByDefinition) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    for (const int64_t seq : {1, 7, 33}) {
      const auto q = torch::randn({2, seq, 4, 8}).requires_grad_(true);
      const auto k = torch::randn({2, seq, kv_heads, 8}).requires_grad_(true);
      const auto v = torch::randn({2, seq, kv_heads, 8}).requires_grad_(true);
      const auto got = ops::causal_attention(q, k, v), wanted = attention_by_definition(q, k, v);
      EXPECT_EQ(got.sizes(), (std::vector<int64_t>{2, seq, 32}));
      EXPECT_TRUE(torch::allclose(got.to(torch::kFloat64), wanted, 1e-5, 1e-5));
      const auto factor = torch::randn_like(got);
      const auto grads = [&](const torch::Tensor& y) {
        std::vector<torch::Tensor> all;
        for (const auto& x : {q, k, v}) x.mutable_grad().reset();
        (y * factor).sum().backward();
        for (const auto& x : {q, k, v}) all.push_back(x.grad().clone());
        return all;
      };
      const auto got_grads = grads(got), wanted_grads = grads(wanted);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::allclose(got_grads[i], wanted_grads[i], 1e-4, 1e-5)) << i;
    }
  }
}

TEST(Functions, GeluByDefinition) {
  const auto x = torch::linspace(-6, 6, 101, torch::kFloat64);
  const auto wanted = 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
  EXPECT_TRUE(torch::allclose(ops::gelu(x.to(torch::kFloat32)).to(torch::kFloat64), wanted, 1e-5, 1e-6));
}

TEST(Functions, NormsByDefinition) {
  const auto x = torch::randn({3, 5, 16}, torch::kFloat64) * 2 + 1, weight = torch::rand({16}, torch::kFloat64);
  const auto bias = torch::randn({16}, torch::kFloat64);
  const auto f = [](const torch::Tensor& t) { return t.to(torch::kFloat32); };
  const auto centred = x - x.mean(-1, true);
  const auto layer = centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * weight + bias;
  EXPECT_TRUE(torch::allclose(ops::layer_norm(f(x), f(weight), f(bias), 1e-5), f(layer), 1e-5, 1e-5));
  const auto rms = x / (x.square().mean(-1, true) + 1e-5).sqrt() * weight;
  EXPECT_TRUE(torch::allclose(ops::rms_norm(f(x), f(weight), 1e-5), f(rms), 1e-5, 1e-5));
}

TEST(Functions, RotationTurnsPairs) {
  const auto x = torch::randn({1, 3, 2, 4});
  const auto angle = torch::rand({3, 1, 2});
  const auto y = ops::rotate(x, angle.cos(), angle.sin());
  const auto a = x.narrow(3, 0, 2), b = x.narrow(3, 2, 2);
  EXPECT_TRUE(torch::allclose(y.narrow(3, 0, 2), a * angle.cos() - b * angle.sin()));
  EXPECT_TRUE(torch::allclose(y.norm(2, -1), x.norm(2, -1)));
}

TEST(Functions, SwigluByDefinition) {
  const auto gate = torch::randn({4, 8}), up = torch::randn({4, 8});
  EXPECT_TRUE(torch::allclose(ops::swiglu(gate, up), gate * gate.sigmoid() * up, 1e-5, 1e-6));
}

}  // namespace
}  // namespace trireme
