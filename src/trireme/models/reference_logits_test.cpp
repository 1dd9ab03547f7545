// Weights of Hugging Face's models give the logits that `transformers` computed (tools/make_reference_logits.py).
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstring>
#include <filesystem>

#include "support/paths.h"
#include "trireme/checkpoint/hugging_face.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/models/built_in.h"

namespace trireme {
namespace {

SafetensorsFile open_data(const std::string& name) {
  return SafetensorsFile(source_path("tests/data/" + name + ".safetensors"));
}

torch::Tensor to_tensor(const TensorView& view, torch::ScalarType type) {
  auto tensor = torch::empty(view.info.shape, type);
  std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

ModelConfig tiny_config(ModelKind kind) {
  ModelConfig c;
  c.kind = kind;
  c.layers = 2;
  c.hidden = 48;
  c.heads = kind == ModelKind::kGpt2 ? 4 : 6;
  c.kv_heads = 2;
  c.ffn = kind == ModelKind::kGpt2 ? 96 : 80;
  c.seq = 24;
  c.vocab = 97;
  c.tied = kind == ModelKind::kGpt2;
  return c;
}

void check(ModelKind kind, const std::string& name) {
  const ModelConfig config = tiny_config(kind);
  const auto model = make_model(config, 1);
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto parameters = model->named_parameters();
  const SafetensorsFile weights = open_data(name + "_weights");
  const auto imported = from_hugging_face(config, weights.views());
  EXPECT_EQ(imported.size(), parameters.size());
  for (const OwnedTensor& tensor : imported) {
    const auto* parameter = parameters.find(tensor.info.name);
    ASSERT_NE(parameter, nullptr) << tensor.info.name;
    parameter->copy_(to_tensor(tensor.view(), torch::kFloat32));
  }
  const SafetensorsFile expected = open_data(name + "_logits");
  const auto logits = model->forward(to_tensor(expected.tensor("tokens"), torch::kInt64));
  const auto wanted = to_tensor(expected.tensor("logits"), torch::kFloat32);
  ASSERT_EQ(logits.sizes(), wanted.sizes());
  EXPECT_GT(wanted.abs().max().item<float>(), 1) << "logits near 0 would prove nothing";
  EXPECT_LT((logits - wanted).abs().max().item<float>(), 1e-4);
}

TEST(ReferenceLogits, Gpt2) { check(ModelKind::kGpt2, "gpt2_tiny"); }
TEST(ReferenceLogits, Llama) { check(ModelKind::kLlama, "llama_tiny"); }

}  // namespace
}  // namespace trireme
