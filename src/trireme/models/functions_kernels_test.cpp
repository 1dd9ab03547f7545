// Operators with kernels of our own against libtorch's in double: values, gradients, odd sizes, and bits.
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/models/built_in.h"
#include "trireme/models/functions.h"
#include "trireme/models/kernels/multiply.h"
#include "trireme/models/models_test_util.h"

namespace trireme {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Function = std::function<torch::Tensor(const Tensors&)>;

struct Result {
  torch::Tensor y;
  Tensors gradients;
};

/// y and the gradients of (y · factor).sum(); inputs that are not floating-point have none.
Result run(const Function& function, const Tensors& inputs, const torch::Tensor& factor) {
  Tensors leaves;
  for (const auto& x : inputs) leaves.push_back(x.is_floating_point() ? x.detach().requires_grad_(true) : x);
  Result result;
  const auto y = function(leaves);
  y.backward(factor.to(y.scalar_type()).expand(y.sizes()));
  result.y = y.detach();
  for (const auto& x : leaves) {
    if (x.is_floating_point()) result.gradients.push_back(x.grad());
  }
  return result;
}

/// The largest error over the largest value, or over `scale` where that is larger.
double error(const torch::Tensor& got, const torch::Tensor& wanted, double scale = 0.01) {
  if (got.sizes() != wanted.sizes()) return INFINITY;
  if (got.numel() == 0) return 0;
  const double most = std::max(scale, wanted.abs().max().item<double>());
  return (got.to(torch::kFloat64) - wanted).abs().max().item<double>() / most;
}

class KernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    at::set_num_threads(1);
    if (!model_kernels::best()) GTEST_SKIP() << "this machine has no AVX2";
  }
  void TearDown() override { at::set_num_threads(threads_); }

  /// Against `reference`, or the function itself, in double, which is libtorch's.
  static void check(const Function& function, const Tensors& inputs, const torch::Tensor& factor,
                    const Function& reference = {}, double scale = 0.01) {
    Tensors doubles;
    for (const auto& x : inputs) doubles.push_back(x.is_floating_point() ? x.to(torch::kFloat64) : x);
    const auto got = run(function, inputs, factor),
               wanted = run(reference ? reference : function, doubles, factor.to(torch::kFloat64));
    EXPECT_LT(error(got.y, wanted.y), 1e-6);
    ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
    for (size_t i = 0; i < got.gradients.size(); ++i) {
      EXPECT_LT(error(got.gradients[i], wanted.gradients[i], scale), 1e-5) << "gradient of input " << i;
    }

    const auto same = [&](const Result& again, const char* what) {
      EXPECT_TRUE(torch::equal(again.y, got.y)) << what;
      for (size_t i = 0; i < got.gradients.size(); ++i) {
        EXPECT_TRUE(torch::equal(again.gradients[i], got.gradients[i])) << what << ", gradient of input " << i;
      }
    };
    same(run(function, inputs, factor), "a second time");
    for (const int64_t shift : {1, 3, 8}) {
      Tensors shifted;
      for (const auto& x : inputs) {
        shifted.push_back(torch::empty({x.numel() + shift}, x.options()).narrow(0, shift, x.numel()).view(x.sizes()));
        shifted.back().copy_(x);
      }
      same(run(function, shifted, factor), "at another alignment");
    }
    Tensors strided;
    for (const auto& x : inputs) {
      strided.push_back(x.dim() < 2 ? x : x.transpose(0, -1).contiguous().transpose(0, -1));
    }
    same(run(function, strided, factor), "not contiguous");
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(function(inputs), got.y)) << "without gradients";
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(KernelsTest, Linear) {
  const Function with_bias = [](const Tensors& x) { return ops::linear(x[0], x[1], x[2]); };
  const Function without = [](const Tensors& x) { return ops::linear(x[0], x[1]); };
  for (const auto& [rows, in, out] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 256, 20}, {5, 20, 33}, {15, 300, 31}, {127, 20, 600}, {43, 513, 64}, {128, 256, 256}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << in << " to " << out);
    const auto x = torch::randn({rows, in}), weight = torch::randn({out, in}), factor = torch::randn({rows, out});
    check(with_bias, {x, weight, torch::randn({out})}, factor);
    check(without, {x, weight}, factor);
  }
  check(with_bias, {torch::randn({2, 3, 4}), torch::randn({5, 4}), torch::randn({5})}, torch::randn({2, 3, 5}));
}

TEST_F(KernelsTest, RowsOfLinearDoNotDependOnTheRowsBeside) {
  const auto x = torch::randn({100, 70}), weight = torch::randn({50, 70}), bias = torch::randn({50});
  // Our product itself: ops::linear takes it only where it is the faster one.
  const auto linear = [&](const torch::Tensor& some) {
    auto y = torch::empty({some.size(0), 50});
    model_kernels::multiply(*model_kernels::best(), some.size(0), 50, 70, {some.const_data_ptr<float>(), 70, 1},
                            {weight.const_data_ptr<float>(), 1, 70}, bias.const_data_ptr<float>(),
                            y.mutable_data_ptr<float>());
    return y;
  };
  const auto all = linear(x);
  EXPECT_TRUE(torch::allclose(all, torch::linear(x, weight, bias), 1e-4, 1e-4));
  for (const int64_t rows : {1, 13, 40}) {
    EXPECT_TRUE(torch::equal(linear(x.narrow(0, 17, rows)), all.narrow(0, 17, rows))) << rows;
  }
}

TEST_F(KernelsTest, OnlyTheGradientsAskedForAreComputed) {
  const auto x = torch::randn({4, 6}).requires_grad_(true), weight = torch::randn({3, 6}).requires_grad_(true);
  const auto y = ops::linear(x, weight.detach(), torch::zeros({3}));
  y.backward(torch::ones_like(y));
  EXPECT_TRUE(torch::allclose(x.grad(), torch::ones_like(y).matmul(weight.detach())));
  const auto z = ops::linear(x.detach(), weight);
  z.backward(torch::ones_like(z));
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::ones_like(z).t().matmul(x.detach()), 1e-5, 1e-6));
}

TEST_F(KernelsTest, Gelu) {
  const Function gelu = [](const Tensors& x) { return ops::gelu(x[0]); };
  for (const int64_t width : {1, 5, 16, 20, 127, 256})
    check(gelu, {2 * torch::randn({3, width})}, torch::randn({3, width}));
  // Each value by itself, far from zero too: our form does not cancel where tanh is near −1.
  const auto x = torch::linspace(-9, 9, 20001);
  const auto wide = x.to(torch::kFloat64);
  const auto wanted = wide * (2 * std::sqrt(2 / M_PI) * (wide + 0.044715 * wide.pow(3))).sigmoid();
  const auto relative = ((ops::gelu(x).to(torch::kFloat64) - wanted) / wanted).abs().nan_to_num(0);
  EXPECT_LT(relative.masked_select(x.abs() < 3).max().item<double>(), 1e-6);
  EXPECT_LT((ops::gelu(x).to(torch::kFloat64) - wanted).abs().max().item<double>(), 1e-6);
  const auto edge = ops::gelu(torch::tensor({0.f, 1e30f, -50.f, NAN}));
  EXPECT_EQ(edge[0].item<float>(), 0);
  EXPECT_EQ(edge[1].item<float>(), 1e30f);
  EXPECT_NEAR(edge[2].item<float>(), 0, 1e-30);
  EXPECT_TRUE(edge[3].isnan().item<bool>());
}

TEST_F(KernelsTest, Attention) {
  const Function parts = [](const Tensors& x) { return ops::causal_attention(x[0], x[1], x[2]); };
  const auto check_one = [&](int64_t seq, int64_t heads, int64_t kv_heads, int64_t dim) {
    SCOPED_TRACE(testing::Message() << "seq " << seq << ", heads " << heads << "/" << kv_heads << ", dim " << dim);
    const auto factor = torch::randn({2, seq, heads * dim});
    // A single key has no gradient but the rounding of terms that are above 1.
    check(parts,
          {torch::randn({2, seq, heads, dim}), torch::randn({2, seq, kv_heads, dim}),
           torch::randn({2, seq, kv_heads, dim})},
          factor, {}, 1);
    const Function packed = [&](const Tensors& x) { return ops::causal_attention(x[0], heads, kv_heads); };
    check(packed, {torch::randn({2, seq, (heads + 2 * kv_heads) * dim})}, factor, {}, 1);
  };
  for (const int64_t seq : {1, 5, 127}) {
    for (const int64_t dim : {8, 32, 64, 80}) check_one(seq, 2, 2, dim);
  }
  check_one(33, 6, 2, 20);   // grouped
  check_one(7, 2, 1, 300);   // deeper than a block
  check_one(290, 2, 1, 16);  // more keys than a piece, more queries than a block
}

TEST_F(KernelsTest, AttentionOfASampleDoesNotDependOnTheOthers) {
  const auto qkv = torch::randn({3, 40, 96});
  const auto all = ops::causal_attention(qkv, 4, 4);
  EXPECT_TRUE(torch::equal(ops::causal_attention(qkv.narrow(0, 1, 1), 4, 4), all.narrow(0, 1, 1)));
}

TEST_F(KernelsTest, AttentionOfLargeScores) {
  const auto qkv = 30 * torch::randn({1, 20, 24});
  const auto got = ops::causal_attention(qkv, 1, 1);
  EXPECT_LT(error(got, ops::causal_attention(qkv.to(torch::kFloat64), 1, 1)), 1e-4);
}

TEST_F(KernelsTest, CrossEntropy) {
  const Function loss = [](const Tensors& x) { return ops::cross_entropy(x[0], x[1]); };
  const Function reference = [](const Tensors& x) {
    return at::cross_entropy_loss(x[0].flatten(0, -2), x[1].flatten());
  };
  for (const int64_t classes : {1, 5, 20, 127, 512}) {
    SCOPED_TRACE(classes);
    const auto logits = 3 * torch::randn({2, 7, classes}), target = torch::randint(classes, {2, 7}, torch::kInt64);
    check(loss, {logits, target}, torch::tensor(1.f), reference);
    check(loss, {logits, target}, torch::tensor(0.25f), reference);
    target[0][3] = target[1][1] = -100;
    check(loss, {logits, target}, torch::tensor(1.f), reference);
  }
  const auto sure = torch::tensor({{1000.f, 0.f}, {-1000.f, 0.f}});
  EXPECT_EQ(ops::cross_entropy(sure, torch::tensor({0, 1}, torch::kInt64)).item<float>(), 0);
  EXPECT_EQ(ops::cross_entropy(sure, torch::tensor({1, 1}, torch::kInt64)).item<float>(), 500);
}

TEST_F(KernelsTest, CrossEntropyNamesTheWrongTarget) {
  try {
    ops::cross_entropy(torch::randn({2, 4}), torch::tensor({0, 4}, torch::kInt64));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "target 4 of row 1 is none of the 4 classes\n"
                 "  give targets from 0 on, or -100 for rows that do not count");
  }
}

/// (f(x + h) − f(x − h)) / 2h along a random direction, of the operators themselves and not of libtorch's.
TEST_F(KernelsTest, GradientsAreSlopes) {
  const std::vector<std::pair<Function, torch::Tensor>> all = {
      {[](const Tensors& x) { return ops::gelu(x[0]); }, torch::randn({4, 20})},
      {[](const Tensors& x) { return ops::causal_attention(x[0], 2, 2); }, torch::randn({2, 9, 48})},
      {[](const Tensors& x) { return ops::cross_entropy(x[0], torch::zeros({6}, torch::kInt64)); },
       torch::randn({6, 11})},
      {[](const Tensors& x) {
         return ops::linear(x[0], torch::ones({3, 20}));
       },
       torch::randn({4, 20})},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [function, x] = all[i];
    const auto factor = torch::randn_like(function({x})), direction = torch::randn_like(x);
    const double slope = (run(function, {x}, factor).gradients[0] * direction).sum().item<double>();
    const auto value = [&](double h) {
      return (function({x + h * direction}).to(torch::kFloat64) * factor).sum().item<double>();
    };
    const double h = 1e-2;
    EXPECT_NEAR((value(h) - value(-h)) / (2 * h), slope, 2e-2 * (1 + std::abs(slope))) << i;
  }
}

TEST_F(KernelsTest, SecondOrderIsRefused) {
  const auto x = torch::randn({2, 3, 12}).requires_grad_(true);
  const auto target = torch::zeros({2, 3}, torch::kInt64);
  for (const auto& y : {ops::gelu(x), ops::causal_attention(x, 2, 2), ops::cross_entropy(x, target)}) {
    try {
      y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has no gradient of its own"), std::string::npos);
    }
  }
}

TEST_F(KernelsTest, HalvesTakeLibtorchs) {
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    const auto x = torch::randn({2, 5, 24}).to(type);
    EXPECT_EQ(ops::gelu(x).scalar_type(), type);
    EXPECT_EQ(ops::linear(x, torch::randn({3, 24}).to(type)).scalar_type(), type);
    EXPECT_LT(error(ops::causal_attention(x, 2, 2), ops::causal_attention(x.to(torch::kFloat64), 2, 2)), 2e-2);
    EXPECT_EQ(ops::cross_entropy(x, torch::zeros({2, 5}, torch::kInt64)).scalar_type(), torch::kFloat32);
  }
}

TEST_F(KernelsTest, WholeModelsAreAsWithLibtorch) {
  for (const auto kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const auto config = small_config(kind);
    const auto model = make_model(config, 3);
    const auto x = small_input(config, 3), target = small_target(config, 3);
    const auto step = [&] {
      model->zero_grad();
      for (const auto& tied : model->tied_uses()) tied.use->mutable_grad().reset();
      const auto loss = model->loss(model->forward(x), target);
      loss.backward();
      Tensors all{loss.detach()};
      for (const auto& parameter : model->parameters()) all.push_back(parameter.grad().clone());
      return all;
    };
    const auto ours = step(), again = step();
    ops::use_plain(true);
    const auto plain = step();
    ops::use_plain(false);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(torch::equal(ours[i], again[i])) << i;
      EXPECT_TRUE(torch::allclose(ours[i], plain[i], 1e-4, 1e-6)) << i;
    }
  }
}

/// Both tables, whatever this machine prefers.
TEST_F(KernelsTest, EachInstructionSetMultiplies) {
  for (const auto* kernels : {model_kernels::avx2(), model_kernels::avx512()}) {
    if (!kernels) continue;
    const int64_t rows = 29, columns = 533, depth = 270;
    const auto a = torch::randn({rows, depth}), b = torch::randn({depth, columns}), bias = torch::randn({columns});
    const auto wanted = a.to(torch::kFloat64).matmul(b.to(torch::kFloat64)) + bias;
    const auto a_turned = a.t().contiguous(), b_turned = b.t().contiguous();
    const auto of = [](const torch::Tensor& x) { return x.const_data_ptr<float>(); };
    for (const model_kernels::Matrix left : {model_kernels::Matrix{of(a), depth, 1}, {of(a_turned), 1, rows}}) {
      for (const model_kernels::Matrix right : {model_kernels::Matrix{of(b), columns, 1}, {of(b_turned), 1, depth}}) {
        auto c = torch::full({rows, columns}, NAN);
        model_kernels::multiply(*kernels, rows, columns, depth, left, right, of(bias), c.mutable_data_ptr<float>());
        EXPECT_LT(error(c, wanted), 1e-6);
      }
    }
    const auto x = torch::linspace(-6, 6, 101);
    auto y = torch::empty_like(x);
    kernels->gelu(of(x), y.mutable_data_ptr<float>(), x.numel());
    EXPECT_LT(error(y, at::gelu(x.to(torch::kFloat64), "tanh")), 1e-6);
    // Attention of one head: forward and backward through the table itself.
    const int64_t seq = 45, dim = 20;
    const auto head = [&] { return torch::randn({1, seq, 1, dim}); };
    const auto q = head(), k = head(), v = head(), d_o = head();
    auto o = head(), dq = head(), dk = head(), dv = head(), log_sums = torch::empty({seq});
    const auto at = [&](const torch::Tensor& t) { return model_kernels::Heads{t.data_ptr<float>(), dim}; };
    const model_kernels::AttentionShape shape{seq, dim, 1, dim, dim, static_cast<float>(1 / std::sqrt(20.0)), dim};
    auto space =
        torch::empty({std::max(kernels->attention_scratch(shape), kernels->attention_backward_scratch(shape))});
    kernels->attention(shape, at(q), at(k), at(v), at(o), log_sums.data_ptr<float>(), space.data_ptr<float>());
    kernels->attention_backward(shape, at(q), at(k), at(v), at(o), at(d_o), of(log_sums), at(dq), at(dk), at(dv),
                                space.data_ptr<float>());
    const Function plain = [](const Tensors& t) { return ops::causal_attention(t[0], t[1], t[2]); };
    Tensors doubles;
    for (const auto& t : {q, k, v}) doubles.push_back(t.to(torch::kFloat64));
    const auto through = run(plain, doubles, d_o.flatten(2).to(torch::kFloat64));
    EXPECT_LT(error(o.flatten(2), through.y), 1e-6);
    EXPECT_LT(error(dq, through.gradients[0]), 1e-5);
    EXPECT_LT(error(dk, through.gradients[1]), 1e-5);
    EXPECT_LT(error(dv, through.gradients[2]), 1e-5);
  }
}

}  // namespace
}  // namespace trireme
