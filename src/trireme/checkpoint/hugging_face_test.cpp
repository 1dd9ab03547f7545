// Names and shapes of Hugging Face: there and back is the identity, and what does not fit is listed.
#include "trireme/checkpoint/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/hugging_face_names.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelConfig config_of(ModelKind kind, bool tied = true) {
  ModelConfig c;
  c.kind = kind;
  c.layers = 2;
  c.hidden = 12;
  c.heads = 6;
  c.kv_heads = 2;
  c.ffn = 37;  // more than a tile of the transposition, and no multiple of it
  c.seq = 5;
  c.vocab = 11;
  c.tied = tied;
  return c;
}

/// Our tensors of this model, with random bytes.
std::vector<OwnedTensor> random_tensors(const ModelConfig& config, DataType type) {
  std::mt19937 random(7);
  std::vector<OwnedTensor> tensors;
  for (const NameRule& rule : hugging_face_rules(config)) {
    OwnedTensor tensor{{rule.ours, type, rule.shape}, {}};
    tensor.bytes.resize(tensor.info.num_bytes());
    for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<TensorView> views_of(const std::vector<OwnedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

OwnedTensor& named(std::vector<OwnedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, [](const OwnedTensor& tensor) { return tensor.info.name; });
  if (found == tensors.end()) throw Error("no " + name);
  return *found;
}

/// What an import of these says.
std::string refusal(const ModelConfig& config, const std::vector<OwnedTensor>& tensors) {
  try {
    from_hugging_face(config, views_of(tensors));
  } catch (const Error& error) {
    return error.what();
  }
  return "imported";
}

TEST(HuggingFace, ThereAndBackIsTheIdentity) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const bool tied : {true, false}) {
      for (const DataType type : {DataType::kFloat, DataType::kBFloat16, DataType::kDouble, DataType::kUInt8}) {
        const ModelConfig config = config_of(kind, tied);
        const auto ours = random_tensors(config, type);
        const auto theirs = to_hugging_face(config, views_of(ours));
        const auto back = from_hugging_face(config, views_of(theirs));
        ASSERT_EQ(back.size(), ours.size());
        for (size_t i = 0; i < ours.size(); ++i) {
          EXPECT_EQ(back[i].info, ours[i].info);
          EXPECT_EQ(back[i].bytes, ours[i].bytes) << ours[i].info.name;
        }
      }
    }
  }
}

TEST(HuggingFace, Gpt2StoresInByOut) {
  const ModelConfig config = config_of(ModelKind::kGpt2);
  auto ours = random_tensors(config, DataType::kInt32);
  auto theirs = to_hugging_face(config, views_of(ours));
  const OwnedTensor& from = named(ours, "layers.1.attention.qkv.weight");
  const OwnedTensor& to = named(theirs, "transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(from.info.shape, (std::vector<int64_t>{36, 12}));
  EXPECT_EQ(to.info.shape, (std::vector<int64_t>{12, 36}));
  const auto at = [](const OwnedTensor& tensor, size_t row, size_t column) {
    int32_t value;
    std::memcpy(&value, &tensor.bytes[4 * (row * static_cast<size_t>(tensor.info.shape[1]) + column)], 4);
    return value;
  };
  for (size_t out = 0; out < 36; ++out) {
    for (size_t in = 0; in < 12; ++in) EXPECT_EQ(at(from, out, in), at(to, in, out));
  }
  EXPECT_EQ(named(theirs, "transformer.wte.weight").bytes, named(ours, "embedding.token.weight").bytes);
}

TEST(HuggingFace, LlamaHasQueriesKeysAndValuesApart) {
  const ModelConfig config = config_of(ModelKind::kLlama);
  auto ours = random_tensors(config, DataType::kFloat);
  auto theirs = to_hugging_face(config, views_of(ours));
  std::vector<std::byte> joined;
  for (const char* part : {"q", "k", "v"}) {
    const OwnedTensor& tensor = named(theirs, std::string("model.layers.0.self_attn.") + part + "_proj.weight");
    EXPECT_EQ(tensor.info.shape, (std::vector<int64_t>{*part == 'q' ? 12 : 4, 12}));
    joined.insert(joined.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  EXPECT_EQ(joined, named(ours, "layers.0.attention.qkv.weight").bytes);
}

TEST(HuggingFace, TakesFilesOfABareModelWithItsMasks) {
  const ModelConfig config = config_of(ModelKind::kGpt2);
  const auto ours = random_tensors(config, DataType::kFloat);
  auto theirs = to_hugging_face(config, views_of(ours));
  for (OwnedTensor& tensor : theirs) tensor.info.name.erase(0, std::string("transformer.").size());
  theirs.push_back({{"h.0.attn.bias", DataType::kUInt8, {1, 1, 5, 5}}, std::vector<std::byte>(25)});
  theirs.push_back({{"h.0.attn.masked_bias", DataType::kFloat, {}}, std::vector<std::byte>(4)});
  const auto back = from_hugging_face(config, views_of(theirs));
  ASSERT_EQ(back.size(), ours.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(back[i].bytes, ours[i].bytes);
}

TEST(HuggingFace, TiedWeightsMayBeRepeatedButNotDiffer) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const ModelConfig config = config_of(kind);
    auto theirs = to_hugging_face(config, views_of(random_tensors(config, DataType::kFloat)));
    OwnedTensor head = theirs.front();
    head.info.name = "lm_head.weight";
    theirs.push_back(head);
    EXPECT_EQ(refusal(config, theirs), "imported");
    theirs.back().bytes[3] ^= std::byte{1};
    EXPECT_THAT(refusal(config, theirs), HasSubstr("not tied (model.tied = false)"));
  }
}

TEST(HuggingFace, ListsAllThatDoesNotFit) {
  const ModelConfig config = config_of(ModelKind::kGpt2);
  auto theirs = to_hugging_face(config, views_of(random_tensors(config, DataType::kFloat)));
  named(theirs, "transformer.ln_f.bias").info.shape = {3, 4};
  named(theirs, "transformer.h.0.ln_1.weight").info.name = "transformer.h.0.ln_9.weight";
  named(theirs, "transformer.wpe.weight").bytes.pop_back();
  theirs.push_back(named(theirs, "transformer.h.1.ln_1.bias"));
  EXPECT_EQ(refusal(config, theirs),
            "the tensors to import do not fit the model:\n"
            "    transformer.h.1.ln_1.bias is there twice\n"
            "    transformer.wpe.weight has 239 bytes, not 240\n"
            "    transformer.h.0.ln_1.weight [12] is missing\n"
            "    transformer.ln_f.bias is [3, 4], not [12]\n"
            "    transformer.h.0.ln_9.weight [12] is unknown\n"
            "  check [model]: layers, hidden, heads, kv_heads, ffn, seq, vocab and tied");
}

TEST(HuggingFace, CountsProblemsPastTheFirstTwenty) {
  ModelConfig config = config_of(ModelKind::kLlama);
  const auto theirs = to_hugging_face(config, views_of(random_tensors(config, DataType::kFloat)));
  config.layers = 6;
  const std::string text = refusal(config, theirs);
  EXPECT_THAT(text, HasSubstr("model.layers.2.self_attn.q_proj.weight [12, 12] is missing"));
  EXPECT_THAT(text, HasSubstr("and 16 more"));
  EXPECT_THAT(text, Not(HasSubstr("model.layers.5.")));
}

TEST(HuggingFace, PartsOfOneTensorHaveOneType) {
  const ModelConfig config = config_of(ModelKind::kLlama);
  auto theirs = to_hugging_face(config, views_of(random_tensors(config, DataType::kFloat)));
  OwnedTensor& key = named(theirs, "model.layers.0.self_attn.k_proj.weight");
  key.info.type = DataType::kDouble;
  key.bytes.resize(key.info.num_bytes());
  EXPECT_THAT(refusal(config, theirs), HasSubstr("k_proj.weight is"));
}

TEST(HuggingFace, MissingPartsDoNotMoveOthers) {
  const ModelConfig config = config_of(ModelKind::kLlama);
  auto theirs = to_hugging_face(config, views_of(random_tensors(config, DataType::kFloat)));
  std::erase_if(theirs, [](const OwnedTensor& tensor) { return tensor.info.name.ends_with("q_proj.weight"); });
  EXPECT_THAT(refusal(config, theirs), HasSubstr("model.layers.1.self_attn.q_proj.weight [12, 12] is missing"));
}

TEST(HuggingFace, OtherModelsHaveNoCounterpart) {
  for (const ModelKind kind : {ModelKind::kMlp, ModelKind::kResNet}) {
    EXPECT_THROW(to_hugging_face(config_of(kind), {}), UsageError);
    EXPECT_THROW(from_hugging_face(config_of(kind), {}), UsageError);
    EXPECT_THROW(hugging_face_config(config_of(kind), DataType::kFloat), UsageError);
  }
}

TEST(HuggingFace, ConfigSaysWhatTheModelIs) {
  const auto gpt2 = nlohmann::json::parse(hugging_face_config(config_of(ModelKind::kGpt2), DataType::kBFloat16));
  EXPECT_EQ(gpt2["model_type"], "gpt2");
  EXPECT_EQ(gpt2["architectures"], nlohmann::json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(gpt2["n_inner"], 37);
  EXPECT_EQ(gpt2["torch_dtype"], "bfloat16");
  const auto llama = nlohmann::json::parse(hugging_face_config(config_of(ModelKind::kLlama, false), DataType::kFloat));
  EXPECT_EQ(llama["num_key_value_heads"], 2);
  EXPECT_EQ(llama["tie_word_embeddings"], false);
  EXPECT_EQ(llama["torch_dtype"], "float32");
}

}  // namespace
}  // namespace trireme
