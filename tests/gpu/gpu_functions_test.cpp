// The operators of models on a GPU against the same composition in double precision on the CPU, forward and backward.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "trireme/gpu/device.h"
#include "trireme/models/functions.h"

namespace trireme {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Function = std::function<torch::Tensor(const Tensors&)>;

double bound_of(torch::ScalarType type) {
  return type == torch::kFloat32 ? 2e-5 : type == torch::kFloat16 ? 4e-3 : 2e-2;
}

/// ‖a − b‖ / ‖b‖.
double largest_distance(const torch::Tensor& a, const torch::Tensor& b) {
  const auto exact = b.to(torch::kFloat64).cpu();
  return ((a.to(torch::kFloat64).cpu() - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

class GpuFunctions : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu::survey().usable()) GTEST_SKIP() << "no GPU: not run (" << gpu::survey().problem << ")";
    torch::manual_seed(1);
  }

  /// `inputs` in double; those of index < `num_wide` stay float32 on the GPU whatever the type (vectors of norms).
  void compare(const char* name, const Function& function, const Tensors& inputs, torch::ScalarType type,
               const std::vector<size_t>& float_inputs = {}) {
    Tensors on_gpu, exact;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].is_floating_point()) {
        on_gpu.push_back(inputs[i].cuda());
        exact.push_back(inputs[i]);
        continue;
      }
      const bool wide = std::find(float_inputs.begin(), float_inputs.end(), i) != float_inputs.end();
      const auto rounded = inputs[i].to(wide ? torch::kFloat32 : type);
      on_gpu.push_back(rounded.cuda().requires_grad_(true));
      exact.push_back(rounded.to(torch::kFloat64).requires_grad_(true));
    }
    ops::use_plain(false);
    const auto y = function(on_gpu);
    ops::use_plain(true);
    const auto wanted = function(exact);
    ops::use_plain(false);
    ASSERT_EQ(y.sizes(), wanted.sizes()) << name;
    EXPECT_LT(largest_distance(y, wanted), bound_of(type)) << name << " in " << c10::toString(type);
    const auto d = torch::randn(wanted.sizes(), torch::kFloat64).to(y.scalar_type());
    y.backward(d.cuda());
    wanted.backward(d.to(torch::kFloat64));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].is_floating_point()) continue;
      ASSERT_TRUE(on_gpu[i].grad().defined()) << name << ", gradient of input " << i;
      EXPECT_LT(largest_distance(on_gpu[i].grad(), exact[i].grad()), 2 * bound_of(type))
          << name << " in " << c10::toString(type) << ", gradient of input " << i;
    }
  }
};

torch::Tensor normal(at::IntArrayRef sizes, double deviation = 1) {
  return torch::randn(sizes, torch::kFloat64) * deviation;
}

constexpr torch::ScalarType kTypes[] = {torch::kFloat32, torch::kFloat16, torch::kBFloat16};

TEST_F(GpuFunctions, Norms) {
  for (const auto type : kTypes) {
    for (const int64_t width : {8, 33, 768, 1600, 5000}) {
      compare("layer_norm", [](const Tensors& t) { return ops::layer_norm(t[0], t[1], t[2], 1e-5); },
              {normal({3, 5, width}), normal({width}), normal({width})}, type, {1, 2});
      compare("rms_norm", [](const Tensors& t) { return ops::rms_norm(t[0], t[1], 1e-5); },
              {normal({3, 7, width}), normal({width})}, type, {1});
    }
  }
}

TEST_F(GpuFunctions, SwigluAndRotate) {
  const auto angle = torch::rand({6, 1, 8}, torch::kFloat64) * 6;
  for (const auto type : kTypes) {
    compare(
        "swiglu", [](const Tensors& t) { return ops::swiglu(t[0], t[1]); }, {normal({5, 33}), normal({5, 33})}, type);
    compare(
        "rotate",
        [&](const Tensors& t) {
          const auto like = t[0].options().dtype(t[0].is_cuda() ? torch::kFloat32 : torch::kFloat64);
          return ops::rotate(t[0], angle.cos().to(like), angle.sin().to(like));
        },
        {normal({2, 6, 3, 16})}, type);
  }
}

TEST_F(GpuFunctions, Attention) {
  for (const auto type : {torch::kFloat16, torch::kBFloat16, torch::kFloat32}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      compare(
          "causal_attention", [](const Tensors& t) { return ops::causal_attention(t[0], t[1], t[2]); },
          {normal({2, 65, 4, 64}), normal({2, 65, kv_heads, 64}), normal({2, 65, kv_heads, 64})}, type);
    }
    compare(
        "causal_attention of qkv", [](const Tensors& t) { return ops::causal_attention(t[0], 4, 4); },
        {normal({2, 128, 3 * 4 * 32})}, type);
  }
}

TEST_F(GpuFunctions, Embedding) {
  const auto tokens = torch::randint(0, 50, {3, 17}, torch::kInt64);
  for (const auto type : kTypes) {
    for (const int64_t width : {8, 33, 256}) {
      compare(
          "embedding", [](const Tensors& t) { return ops::embedding(t[2], t[0], t[1]); },
          {normal({61, width}), normal({20, width}), tokens}, type);
      compare(
          "embedding alone", [](const Tensors& t) { return ops::embedding(t[1], t[0]); }, {normal({61, width}), tokens},
          type);
    }
  }
}

TEST_F(GpuFunctions, LinearCrossEntropy) {
  auto target = torch::randint(0, 101, {4, 9}, torch::kInt64);
  target[1][3] = -100;
  for (const auto type : kTypes) {
    for (const int64_t classes : {101, 128, 5003}) {
      compare(
          "linear_cross_entropy", [](const Tensors& t) { return ops::linear_cross_entropy(t[0], t[1], t[2]); },
          {normal({4, 9, 64}), normal({classes, 64}, 0.1), target}, type);
    }
  }
}

TEST_F(GpuFunctions, Blocks) {
  constexpr int64_t kWidth = 128, kInner = 512;
  const auto linear = [](int64_t out, int64_t in) { return normal({out, in}, 0.05); };
  for (const auto type : kTypes) {
    compare("mlp_block",
            [](const Tensors& t) {
              return ops::mlp_block(t[0], {t[1], t[2], 1e-5}, {t[3], t[4]}, {t[5], t[6]});
            },
            {normal({3, 20, kWidth}), normal({kWidth}), normal({kWidth}), linear(kInner, kWidth), normal({kInner}),
             linear(kWidth, kInner), normal({kWidth})},
            type, {1, 2});
    compare("attention_block",
            [](const Tensors& t) {
              return ops::attention_block(t[0], {t[1], t[2], 1e-5}, {t[3], t[4]}, {t[5], t[6]}, 4);
            },
            {normal({3, 64, kWidth}), normal({kWidth}), normal({kWidth}), linear(3 * kWidth, kWidth),
             normal({3 * kWidth}), linear(kWidth, kWidth), normal({kWidth})},
            type, {1, 2});
  }
}

TEST_F(GpuFunctions, BitsRepeat) {
  const auto run = [] {
    torch::manual_seed(3);
    const auto options = torch::TensorOptions().device(torch::kCUDA).dtype(torch::kBFloat16).requires_grad(true);
    const auto x = torch::randn({8, 256, 512}, options);
    const auto scale = torch::rand({512}, options.dtype(torch::kFloat32)),
               shift = torch::rand({512}, options.dtype(torch::kFloat32));
    const auto qkv = torch::randn({1536, 512}, options), bias = torch::randn({1536}, options);
    const auto out = torch::randn({512, 512}, options), out_bias = torch::randn({512}, options);
    const auto y = ops::attention_block(x, {scale, shift, 1e-5}, {qkv, bias}, {out, out_bias}, 8);
    y.backward(torch::ones_like(y));
    return Tensors{y.detach(), x.grad(), scale.grad(), shift.grad(), qkv.grad(), bias.grad(), out.grad()};
  };
  const Tensors first = run();
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Tensors again = run();
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], again[i])) << "result " << i;
  }
}

}  // namespace
}  // namespace trireme
