// Models of torch::nn modules: lists of tensors, ties, norms that are followed, random numbers of each layer.
#include <gtest/gtest.h>

#include <functional>

#include "trireme/base/error.h"
#include "trireme/models/model.h"
#include "trireme/tensor/generator_scope.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

struct Open : Model {  // layers are added from outside
  using Model::add_layer;
  using Model::tie;
};

TEST(OwnLayers, ListsGoFromLayerToLayer) {
  Open model;
  model.add_layer("both", [](const torch::Tensor& a, const torch::Tensor& b) { return Tensors{a + b, b}; });
  model.add_layer(
      "first", [](const torch::Tensor& x) { return x * 2; }, Takes::kFirst);
  model.add_layer("list", [](const Tensors& x) { return Tensors{x[1], x[0], x[0] - x[1]}; });
  const torch::Tensor a = torch::ones({2}), b = torch::full({2}, 3.0);
  const Tensors y = model.forward(Tensors{a, b});
  ASSERT_EQ(y.size(), 3u);
  EXPECT_TRUE(torch::equal(y[0], b));
  EXPECT_TRUE(torch::equal(y[1], 2 * (a + b)));
  EXPECT_TRUE(torch::equal(y[2], 2 * (a + b) - b));
  EXPECT_THROW(model.forward(Tensors{a}), UsageError);
}

TEST(OwnLayers, WhatLiesOtherwiseIsMadeContiguousAndSoIsItsGradient) {
  Open model;
  model.add_layer("turn", [](const torch::Tensor& x) { return x.t(); });
  model.add_layer("turn_back", [](const torch::Tensor& x) {
    EXPECT_TRUE(x.is_contiguous());
    return x.t();
  });
  const torch::Tensor x = torch::randn({3, 4}).requires_grad_();
  const torch::Tensor y = model.forward(x);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(torch::equal(y, x));
  (y * y).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), 2 * x));
}

TEST(OwnLayers, AParameterIsOfOneLayerUnlessItIsTied) {
  Open model;
  const auto table = model.add_layer("table", torch::nn::Embedding(5, 3));
  torch::nn::Linear head(torch::nn::LinearOptions(3, 5).bias(false)), small(torch::nn::LinearOptions(3, 4).bias(false));
  model.add_layer("head", head);
  EXPECT_THROW(model.tie(head->weight, "table.wait"), UsageError);
  EXPECT_THROW(model.tie(table->weight, "table.weight"), UsageError) << "it is not of the layer that came last";
  model.tie(head->weight, "table.weight");
  EXPECT_EQ(head->weight.data_ptr(), table->weight.data_ptr());
  EXPECT_EQ(model.parameters().size(), 1u);
  ASSERT_EQ(model.tied_uses().size(), 1u);
  EXPECT_EQ(model.tied_uses()[0].layer, 1u);
  model.add_layer("small", small);
  EXPECT_THROW(model.tie(small->weight, "table.weight"), UsageError);
  EXPECT_THROW(model.add_layer("again", table), UsageError);
}

/// What a norm of torch::nn alone has after the same batches.
TEST(OwnLayers, ANormIsFollowedAsTorchDoes) {
  for (const std::optional<double> momentum : {std::optional<double>(0.1), std::optional<double>()}) {
    torch::nn::BatchNorm2d plain(torch::nn::BatchNorm2dOptions(3).momentum(momentum));
    Open model;
    const auto followed =
        model.add_layer("norm", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(3).momentum(momentum)));
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor x = torch::randn({4, 3, 5, 5}) * (step + 1) + step;
      model.train();
      EXPECT_TRUE(torch::equal(model.forward(x), plain->forward(x)));
      const torch::NoGradGuard no_grad;
      for (const Statistic& statistic : model.statistics()) move_statistic(statistic, *statistic.observed);
      for (const auto& buffer : plain->named_buffers()) {
        const torch::Tensor ours = model.named_buffers()["norm." + buffer.key()];
        EXPECT_TRUE(torch::allclose(ours.to(torch::kFloat64), buffer.value().to(torch::kFloat64), 1e-6, 1e-7))
            << buffer.key() << " in step " << step;
      }
    }
    model.eval();
    plain->eval();
    const torch::Tensor x = torch::randn({4, 3, 5, 5});
    EXPECT_TRUE(torch::allclose(model.forward(x), plain->forward(x), 1e-5, 1e-6));
    model.train();
    const torch::Tensor before = model.named_buffers()["norm.running_mean"].clone();
    model.forward(x);
    EXPECT_TRUE(torch::equal(model.named_buffers()["norm.running_mean"], before)) << "a pass alone moves nothing";
  }
}

/// Part of a backbone: its norm stays in evaluation mode whatever the model does.
struct Frozen : torch::nn::Module {
  Frozen() : norm(register_module("norm", torch::nn::BatchNorm2d(3))) {
    const torch::NoGradGuard no_grad;
    norm->running_mean.fill_(2);
    norm->running_var.fill_(9);
  }
  void train(bool on) override {
    torch::nn::Module::train(on);
    norm->eval();
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm(x); }
  torch::nn::BatchNorm2d norm;
};

void expect_frozen(Model& model, const torch::nn::BatchNorm2d& norm) {
  const torch::Tensor x = torch::full({4, 3, 2, 2}, 8.0);
  for (int step = 0; step < 2; ++step) {
    model.train();
    EXPECT_TRUE(torch::allclose(model.forward(x), torch::full_like(x, 2.0), 1e-4, 1e-4)) << "(8 - 2) / 3";
    const torch::NoGradGuard no_grad;
    for (const Statistic& statistic : model.statistics()) move_statistic(statistic, *statistic.observed * 1.5);
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({3}, 2.0)));
    EXPECT_TRUE(torch::equal(norm->running_var, torch::full({3}, 9.0)));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  }
}

TEST(OwnLayers, ANormInEvaluationModeKeepsItsStatistics) {
  Open model;
  const auto backbone = model.add_layer("backbone", std::make_shared<Frozen>());
  expect_frozen(model, backbone->norm);
}

TEST(OwnLayers, AModelMayPutItsNormsIntoEvaluationModeAfterwards) {
  struct Later : Open {
    Later() : norm(torch::nn::BatchNorm2d(3)) {
      add_layer("norm", norm);
      norm->running_mean.fill_(2);
      norm->running_var.fill_(9);
    }
    void train(bool on) override {
      Model::train(on);
      norm->eval();
    }
    torch::nn::BatchNorm2d norm;
  } model;
  expect_frozen(model, model.norm);
}

TEST(OwnLayers, EachDrawsItsOwnNumbersInEachMicroBatch) {
  Open model;
  model.add_layer("first", torch::nn::Dropout(0.5));
  model.add_layer("second", torch::nn::Dropout(0.5));
  const torch::Tensor x = torch::ones({64});
  const auto draw = [&](uint64_t step, uint64_t micro_batch, size_t layer) {
    const RandomScope scope({3, step, micro_batch});
    return model.forward_layers({x}, layer, layer + 1).at(0);
  };
  torch::manual_seed(1);
  const torch::Tensor before = torch::rand({3});
  torch::manual_seed(1);
  const torch::Tensor once = draw(0, 0, 0);
  EXPECT_TRUE(torch::equal(torch::rand({3}), before)) << "libtorch's own generator stays as it was";
  torch::rand({7});
  EXPECT_TRUE(torch::equal(draw(0, 0, 0), once));
  EXPECT_FALSE(torch::equal(draw(0, 0, 1), once));
  EXPECT_FALSE(torch::equal(draw(0, 1, 0), once));
  EXPECT_FALSE(torch::equal(draw(1, 0, 0), once));
}

TEST(OwnLayers, TheLossDrawsItsOwnNumbersInEachMicroBatch) {
  struct Noisy : Open {
    Noisy() {
      add_layer("same", [](const torch::Tensor& x) { return x; });
    }
    torch::Tensor loss(const Tensors& outputs, const Tensors&) const override {
      return (outputs[0] * torch::rand_like(outputs[0])).sum();
    }
  } model;
  const auto draw = [&](uint64_t step) {
    const RandomScope scope({3, step, 1});
    return model.forward_loss({torch::ones({64})}, {torch::ones({1})});
  };
  torch::manual_seed(1);
  const torch::Tensor once = draw(0);
  torch::manual_seed(2);
  EXPECT_TRUE(torch::equal(draw(0), once));
  EXPECT_FALSE(torch::equal(draw(1), once));
}

TEST(GeneratorScope, IsForAllThatDraws) {
  const std::vector<std::pair<const char*, std::function<torch::Tensor()>>> draws = {
      {"rand", [] { return torch::rand({64}); }},
      {"randn", [] { return torch::randn({64}); }},
      {"uniform_", [] { return torch::empty({64}).uniform_(); }},
      {"normal_", [] { return torch::empty({64}).normal_(); }},
      {"randint", [] { return torch::randint(0, 100, {64}); }},
      {"randperm", [] { return torch::randperm(64); }},
      {"bernoulli", [] { return torch::bernoulli(torch::full({64}, 0.5)); }},
      {"dropout", [] { return torch::dropout(torch::ones({64}), 0.5, true); }},
      {"feature_dropout",
       [] {
         return torch::feature_dropout(torch::ones({8, 8, 2}), 0.5, true);
       }},
      {"multinomial", [] { return torch::multinomial(torch::ones({64}), 32); }},
      {"rand_like", [] { return torch::rand_like(torch::ones({64})); }},
      {"xavier_uniform_", [] {
         return torch::nn::init::xavier_uniform_(torch::empty({8, 8}));
       }}};
  for (const auto& [name, draw] : draws) {
    const auto in_scope = [&, &draw = draw](uint64_t seed) {
      const GeneratorScope scope(seed);
      return draw();
    };
    torch::manual_seed(1);
    const torch::Tensor first = in_scope(5);
    torch::manual_seed(2);
    EXPECT_TRUE(torch::equal(in_scope(5), first)) << name;
    EXPECT_FALSE(torch::equal(in_scope(6), first)) << name;
    const GeneratorScope outer(5);
    in_scope(6);
    EXPECT_TRUE(torch::equal(draw(), first)) << name << ": an inner scope leaves the outer one as it was";
  }
}

}  // namespace
}  // namespace trireme
