// Every kind of model: shapes, counts, gradients, initial values, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/models/built_in.h"
#include "trireme/models/models_test_util.h"

namespace trireme {
namespace {

using testing::HasSubstr;

class EveryModel : public testing::TestWithParam<ModelKind> {
 protected:
  const ModelConfig config_ = small_config(GetParam());
};

int64_t count(const Model& model) {
  int64_t n = 0;
  for (const auto& parameter : model.parameters()) n += parameter.numel();
  return n;
}

TEST_P(EveryModel, GivesLogitsOfTheRightShape) {
  const auto model = make_model(config_, 1);
  const auto logits = model->forward(small_input(config_, 3));
  if (config_.is_language()) {
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3, config_.seq, config_.vocab}));
  } else {
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3, config_.classes}));
  }
  EXPECT_EQ(logits.scalar_type(), torch::kFloat32);
}

TEST_P(EveryModel, StartsNearTheLossOfAGuess) {
  const auto model = make_model(config_, 1);
  const auto loss = model->loss(model->forward(small_input(config_, 8)), small_target(config_, 8));
  const double guess = std::log(static_cast<double>(config_.is_language() ? config_.vocab : config_.classes));
  EXPECT_NEAR(loss.item<double>(), guess, config_.is_language() ? 0.2 : 1.5);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
}

TEST_P(EveryModel, HasFiniteGradientsThatAreNotZero) {
  const auto model = make_model(config_, 1);
  model->loss(model->forward(small_input(config_, 4)), small_target(config_, 4)).backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().sum().item<float>(), 0) << parameter.key();
  }
}

TEST_P(EveryModel, LayersOnTheirOwnEqualTheWhole) {
  const auto model = make_model(config_, 1);
  const auto input = small_input(config_, 4);
  model->eval();
  auto x = input;
  for (const auto& layer : model->layers()) {
    x = layer->forward(Tensors{x.is_floating_point() ? x.detach().clone() : x}).at(0);
  }
  EXPECT_TRUE(torch::equal(x, model->forward(input)));
}

TEST_P(EveryModel, LayersHoldEveryParameterOnce) {
  const auto model = make_model(config_, 1);
  size_t in_layers = 0;
  for (const auto& layer : model->layers()) in_layers += layer->parameters().size();
  EXPECT_EQ(in_layers, model->parameters().size());
}

TEST_P(EveryModel, BeginsTheSameWhateverLibtorchDrewBefore) {
  torch::manual_seed(1);
  const auto a = make_model(config_, 5);
  const auto after_a = torch::rand({1});
  torch::manual_seed(2);
  torch::rand({100});
  const auto b = make_model(config_, 5), c = make_model(config_, 6);
  const auto of_a = a->named_parameters(), of_b = b->named_parameters(), of_c = c->named_parameters();
  int64_t differ = 0;
  for (const auto& parameter : of_a) {
    EXPECT_TRUE(torch::equal(*parameter, of_b[parameter.key()])) << parameter.key();
    differ += !torch::equal(*parameter, of_c[parameter.key()]);
  }
  EXPECT_GE(differ, 3) << "another seed gives other weights";
  torch::manual_seed(1);
  EXPECT_TRUE(torch::equal(after_a, torch::rand({1}))) << "making a model draws nothing from libtorch";
}

TEST_P(EveryModel, SplitsOfABatchAverageToTheWhole) {
  const auto model = make_model(config_, 1);
  model->eval();  // BatchNorm would see other statistics
  const auto input = small_input(config_, 4), target = small_target(config_, 4);
  struct Part {
    double loss = 0;
    std::vector<torch::Tensor> gradients;
  };
  const auto part = [&](int64_t first, int64_t count) {
    const torch::Tensor loss =
        model->loss(model->forward(input.narrow(0, first, count)), target.narrow(0, first, count));
    return Part{loss.item<double>(), torch::autograd::grad({loss}, model->parameters())};
  };
  const Part one = part(0, 2), other = part(2, 2), whole = part(0, 4);
  EXPECT_NEAR((one.loss + other.loss) / 2, whole.loss, 1e-5);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const torch::Tensor mean = (one.gradients[i] + other.gradients[i]) / 2;
    const double largest = whole.gradients[i].abs().max().item<double>();
    EXPECT_LE((mean - whole.gradients[i]).abs().max().item<double>(), 1e-4 * largest + 1e-7)
        << model->named_parameters().keys()[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryModel,
                         testing::Values(ModelKind::kMlp, ModelKind::kResNet, ModelKind::kGpt2, ModelKind::kLlama),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(Model, CountsParametersAsTheConfigurationDoes) {
  for (const ModelKind kind : {ModelKind::kMlp, ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const bool tied : {true, false}) {
      ModelConfig c = small_config(kind);
      c.tied = tied;
      EXPECT_EQ(count(*make_model(c, 1)), count_parameters(c)) << name_of(kind) << " tied " << tied;
    }
  }
}

TEST(Model, ResNetsHaveThePublishedSizes) {
  ModelConfig c = small_config(ModelKind::kResNet);
  c.image = 224;
  c.classes = 1000;
  for (const auto& [depth, published] : {std::pair<int64_t, int64_t>{18, 11'689'512}, {50, 25'557'032}}) {
    c.depth = depth;
    EXPECT_EQ(count(*make_model(c, 1)), published) << depth;
  }
}

TEST(Model, ResNetHasTorchvisionsNames) {
  ModelConfig c = small_config(ModelKind::kResNet);
  c.depth = 50;
  const auto model = make_model(c, 1);
  const auto parameters = model->named_parameters();
  const auto shape = [&](const char* name) { return parameters[name].sizes().vec(); };
  EXPECT_EQ(shape("conv1.weight"), (std::vector<int64_t>{64, 3, 3, 3}));
  EXPECT_EQ(shape("layer1.0.conv3.weight"), (std::vector<int64_t>{256, 64, 1, 1}));
  EXPECT_EQ(shape("layer2.0.downsample.0.weight"), (std::vector<int64_t>{512, 256, 1, 1}));
  EXPECT_EQ(shape("layer4.2.bn3.bias"), (std::vector<int64_t>{2048}));
  EXPECT_EQ(shape("fc.weight"), (std::vector<int64_t>{5, 2048}));
  EXPECT_TRUE(model->named_buffers().contains("layer2.0.downsample.1.running_var"));
  EXPECT_EQ(model->layers().size(), 1u + 3 + 4 + 6 + 3 + 1);
}

TEST(Model, ResNetTakesLargeImagesToo) {
  ModelConfig c = small_config(ModelKind::kResNet);
  c.image = 96;
  const auto model = make_model(c, 1);
  EXPECT_EQ(model->named_parameters()["conv1.weight"].size(-1), 7);
  EXPECT_EQ(model->forward(small_input(c, 2)).sizes(), (std::vector<int64_t>{2, 5}));
}

TEST(Model, Gpt2BeginsAsPublished) {
  ModelConfig c = small_config(ModelKind::kGpt2);
  c.hidden = 128;
  c.layers = 8;
  const auto parameters = make_model(c, 3)->named_parameters();
  const auto deviation = [&](const char* name) { return parameters[name].std().item<double>(); };
  EXPECT_NEAR(deviation("embedding.token.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("layers.7.attention.qkv.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("layers.7.attention.output.weight"), 0.005, 0.0003);
  EXPECT_NEAR(deviation("layers.0.mlp.down.weight"), 0.005, 0.0003);
  EXPECT_EQ(parameters["layers.0.mlp.down.bias"].abs().sum().item<float>(), 0);
  EXPECT_EQ(parameters["norm.weight"].min().item<float>(), 1);
}

TEST(Model, LargeParametersBeginAsIfDrawnAtOnce) {
  ModelConfig c = small_config(ModelKind::kGpt2);
  c.vocab = 5000;  // more elements than one thread fills at a time
  const auto token = make_model(c, 3)->named_parameters()["embedding.token.weight"].detach();
  auto wanted = torch::empty_like(token);
  fill_initial(Initial::normal(0.02), 3, "embedding.token.weight",
               {wanted.mutable_data_ptr<float>(), static_cast<size_t>(wanted.numel())});
  EXPECT_TRUE(torch::equal(token, wanted));
}

TEST(Model, TiedWeightsAreTwoLeavesOfOneMemory) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const ModelConfig c = small_config(kind);
    const auto model = make_model(c, 1);
    auto token = model->named_parameters()["embedding.token.weight"];
    const auto uses = model->tied_uses();
    ASSERT_EQ(uses.size(), 1u);
    EXPECT_EQ(uses[0].parameter, "embedding.token.weight");
    torch::Tensor& use = *uses[0].use;
    EXPECT_EQ(use.data_ptr(), token.data_ptr());
    EXPECT_TRUE(use.is_leaf() && use.requires_grad());

    const auto input = small_input(c, 2), target = small_target(c, 2);
    model->loss(model->forward(input), target).backward();
    ASSERT_TRUE(use.grad().defined());
    // The whole gradient is the sum of both: compare with a model whose head is the embedding's very tensor.
    const auto apart = token.grad() + use.grad();
    token.mutable_grad().reset();
    use = token;
    model->loss(model->forward(input), target).backward();
    EXPECT_TRUE(torch::allclose(apart, token.grad(), 1e-4, 1e-7));
  }
}

TEST(Model, LossOfBFloat16IsTakenInFloat) {
  const auto model = make_model(small_config(ModelKind::kGpt2), 1);
  const auto logits = torch::randn({2, 10, 31}).to(torch::kBFloat16);
  const auto target = torch::randint(31, {2, 10}, torch::kInt64);
  const auto loss = model->loss(logits, target);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_EQ(loss.item<float>(), model->loss(logits.to(torch::kFloat32), target).item<float>());
}

TEST(Model, CountsWhatIsRight) {
  const auto logits = torch::tensor({0.1, 0.9, 0.8, 0.2, 0.3, 0.7}).view({3, 2});
  const auto model = make_model(small_config(ModelKind::kGpt2), 1);
  EXPECT_EQ(model->score({logits}, {torch::tensor({1, 1, 1}, torch::kInt64)}).correct, 2);
  const auto target = torch::tensor({1, 0, 1}, torch::kInt64).view({1, 3});
  const Score score = model->score({logits.view({1, 3, 2})}, {target});
  EXPECT_EQ(score.correct, 3);
  EXPECT_EQ(score.predictions, 3);
  EXPECT_DOUBLE_EQ(score.loss, 3.0 * model->loss(logits.view({1, 3, 2}), target).item<double>());
}

/// What make_model says about `change` applied to the small configuration.
template <typename Change>
std::string refusal(ModelKind kind, Change change) {
  ModelConfig c = small_config(kind);
  change(c);
  try {
    make_model(c, 1);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "made";
}

TEST(Model, SaysWhatCannotBe) {
  using C = ModelConfig;
  EXPECT_EQ(refusal(ModelKind::kGpt2, [](C& c) { c.heads = 5; }), "model.heads = 5 does not divide model.hidden = 24");
  EXPECT_EQ(refusal(ModelKind::kGpt2, [](C& c) { c.layers = 0; }), "model.layers = 0 must be at least 1");
  EXPECT_EQ(refusal(ModelKind::kGpt2, [](C& c) { c.dropout = 1; }), "model.dropout = 1 is not in [0, 1)");
  EXPECT_EQ(refusal(ModelKind::kLlama, [](C& c) { c.kv_heads = 3; }),
            "model.kv_heads = 3 does not divide model.heads = 4");
  EXPECT_THAT(refusal(ModelKind::kLlama, [](C& c) { c.heads = 8, c.kv_heads = 8; }), HasSubstr("heads = 3 is odd"));
  EXPECT_THAT(refusal(ModelKind::kResNet, [](C& c) { c.depth = 20; }), HasSubstr("give 18, 34, 50 or 101"));
  EXPECT_EQ(refusal(ModelKind::kMlp, [](C& c) { c.classes = 0; }), "model.classes = 0 must be at least 1");
}

TEST(Model, RefusesMoreTokensThanPositions) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const auto model = make_model(small_config(kind), 1);
    EXPECT_THROW(model->forward(torch::zeros({1, 11}, torch::kInt64)), UsageError);
    EXPECT_EQ(model->forward(torch::zeros({1, 7}, torch::kInt64)).size(1), 7);
  }
}

}  // namespace
}  // namespace trireme
