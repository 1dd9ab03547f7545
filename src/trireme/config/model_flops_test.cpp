#include "trireme/config/model_flops.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme {
namespace {

ModelConfig flops_preset(const std::string& name) {
  return resolve({"", {"--model", name, "--model.vocab=50304"}, "default"}).model;
}

/// As Megatron-Core writes it.
double megatron(double batch, double s, double l, double h, double v) {
  return 72 * batch * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
}

TEST(ModelFlops, OfAGptAreThoseOfMegatron) {
  EXPECT_DOUBLE_EQ(model_flops(flops_preset("gpt2-124m"), 64), megatron(64, 1024, 12, 768, 50304));
  EXPECT_DOUBLE_EQ(model_flops(flops_preset("gpt2-1.5b"), 16), megatron(16, 1024, 48, 1600, 50304));
  EXPECT_NEAR(model_flops(flops_preset("gpt2-124m"), 64), 5.6011e13, 0.0001e13);
}

TEST(ModelFlops, OfALlamaCountKeysAndThreeMatricesOfTheMlp) {
  ModelConfig model;
  model.kind = ModelKind::kLlama;
  model.layers = 1;
  model.hidden = 8;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 24;
  model.seq = 16;
  model.vocab = 32;
  const double weights = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 24 + 8 * 32;
  EXPECT_DOUBLE_EQ(model_flops(model, 3), 3 * 16 * (6 * weights + 12 * 16 * 8));
  EXPECT_DOUBLE_EQ(model_flops(model, 6), 2 * model_flops(model, 3));
}

TEST(ModelFlops, OfImagesAreNotCounted) {
  ModelConfig model;
  model.kind = ModelKind::kResNet;
  EXPECT_EQ(model_flops(model, 4), 0);
}

}  // namespace
}  // namespace trireme
