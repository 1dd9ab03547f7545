#include "trireme/config/model_config.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/presets.h"
#include "trireme/config/resolve.h"

namespace trireme {
namespace {

int64_t parameters_of(const std::string& preset, std::vector<std::string> arguments = {}) {
  ConfigSources sources;
  sources.default_preset = preset;
  sources.arguments = std::move(arguments);
  return count_parameters(resolve(sources).model);
}

TEST(CountParameters, KnownTotals) {
  EXPECT_EQ(parameters_of("gpt2-124m"), 124'439'808);
  EXPECT_EQ(parameters_of("gpt2-355m"), 354'823'168);
  EXPECT_EQ(parameters_of("gpt2-774m"), 774'030'080);
  EXPECT_EQ(parameters_of("gpt2-1.5b"), 1'557'611'200);
  EXPECT_EQ(parameters_of("llama-7b"), 6'738'415'616);
  EXPECT_EQ(parameters_of("llama-8b"), 8'030'261'248);
  EXPECT_EQ(parameters_of("llama-70b"), 70'553'706'496);
  EXPECT_EQ(parameters_of("resnet18"), 11'689'512);
  EXPECT_EQ(parameters_of("resnet50"), 25'557'032);
  EXPECT_EQ(parameters_of("resnet18", {"--model.depth=34"}), 21'797'672);
  EXPECT_EQ(parameters_of("resnet50", {"--model.depth=101"}), 44'549'160);
}

TEST(CountParameters, SmallImagesHaveASmallFirstConvolution) {
  EXPECT_EQ(parameters_of("resnet18", {"--model.image=32"}), 11'689'512 - 3 * 64 * (49 - 9));
}

TEST(CountParameters, Mlp) {
  // 784 -> 128 -> 128 -> 10, with biases
  EXPECT_EQ(parameters_of("mlp"), 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10);
}

TEST(CountParameters, TiedWeightsCountOnce) {
  EXPECT_EQ(parameters_of("gpt2-124m", {"--model.tied=false"}), 124'439'808 + 50257 * 768);
  EXPECT_EQ(parameters_of("llama-8b", {"--model.tied"}), 8'030'261'248 - int64_t{128256} * 4096);
}

template <typename Type>
concept IsKeyType = requires(const ModelConfig& model) {
  own_value<Type>(model, "key");
};
static_assert(IsKeyType<int64_t> && IsKeyType<double> && IsKeyType<bool> && IsKeyType<std::string>);
static_assert(!IsKeyType<int> && !IsKeyType<float> && !IsKeyType<size_t> && !IsKeyType<const char*>);

TEST(ModelKind, NamesThereAndBack) {
  for (const auto kind : {ModelKind::kMlp, ModelKind::kResNet, ModelKind::kGpt2, ModelKind::kLlama}) {
    EXPECT_EQ(model_kind(name_of(kind)), kind);
  }
  EXPECT_THROW(model_kind("gpt3"), UsageError);
}

}  // namespace
}  // namespace trireme
