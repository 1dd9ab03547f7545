#include "trireme/runtime/split_backward.h"

#include <gtest/gtest.h>

#include <functional>

namespace trireme {
namespace {

/// All kinds of ways from an output to weights and to the input.
struct ToyModule : torch::nn::Module {
  ToyModule() {
    torch::manual_seed(3);
    for (auto* linear : {&first, &second, &third}) *linear = torch::nn::Linear(6, 6);
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    register_module("norm", norm);
    register_module("gru", gru);
    scale = register_parameter("scale", torch::randn({6, 6}));
    unused = register_parameter("unused", torch::randn({2}));
  }

  torch::Tensor chain(torch::Tensor x) { return third(torch::gelu(norm(second(torch::relu(first(x)))))); }
  torch::Tensor residual(torch::Tensor x) { return x + second(torch::tanh(first(x))) * x; }
  /// One layer again and again: its gradient is a sum of many, whose order shows.
  torch::Tensor repeated(torch::Tensor x) {
    for (int i = 0; i < 7; ++i) x = torch::tanh(first(x)) + 0.3 * torch::sigmoid(second(x));
    return x;
  }
  /// A weight that is computed once and used thrice.
  torch::Tensor computed(torch::Tensor x) {
    const torch::Tensor weight = torch::tanh(scale) * first->weight;
    return torch::matmul(torch::tanh(torch::matmul(torch::matmul(x, weight), weight)), weight) + second(x);
  }
  /// Nodes with several outputs.
  torch::Tensor chunks(torch::Tensor x) {
    const auto parts = first(x).chunk(3, 1);
    return torch::cat({parts[2] * parts[0], parts[1], parts[2], parts[0]}, 1);
  }
  torch::Tensor recurrent(torch::Tensor x) { return std::get<0>(gru(x.view({-1, 2, 6}))); }
  /// Half of it does not see the input.
  torch::Tensor aside(torch::Tensor x) { return first(x) + second(torch::ones_like(x)); }
  torch::Tensor without_input(torch::Tensor x) { return first(torch::ones_like(x)); }
  torch::Tensor without_weights(torch::Tensor x) { return torch::tanh(x) * x; }
  torch::Tensor nothing(torch::Tensor x) { return x; }
  torch::Tensor loss(torch::Tensor x) { return torch::mse_loss(chain(x), torch::ones_like(x)); }

  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({6})};
  torch::nn::GRU gru{6, 5};
  torch::Tensor scale, unused;
};

using Part = torch::Tensor (ToyModule::*)(torch::Tensor);

class SplitBackwardOf : public testing::TestWithParam<std::pair<const char*, Part>> {};

std::vector<torch::Tensor> take_gradients(ToyModule& toy) {
  std::vector<torch::Tensor> gradients;
  for (auto& parameter : toy.parameters()) gradients.push_back(std::exchange(parameter.mutable_grad(), {}));
  return gradients;
}

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

TEST_P(SplitBackwardOf, EqualsTheWholeBitForBit) {
  at::set_num_threads(1);
  ToyModule toy;
  const auto part = [&](const torch::Tensor& x) { return (toy.*GetParam().second)(x); };
  for (const bool wants_input : {true, false}) {
    const torch::Tensor x = torch::randn({8, 6}).requires_grad_(wants_input);
    torch::Tensor whole = part(x);
    if (!whole.requires_grad()) continue;
    const torch::Tensor gradient = whole.dim() == 0 ? torch::Tensor() : torch::randn_like(whole);
    torch::autograd::backward({whole}, gradient.defined() ? std::vector{gradient} : std::vector<torch::Tensor>{});
    const auto expected = take_gradients(toy);
    const torch::Tensor expected_input = std::exchange(x.mutable_grad(), {});

    SplitBackward split({part(x)}, {x});
    const torch::Tensor input = split.run_inputs(gradient.defined() ? Tensors{gradient} : Tensors()).at(0);
    for (const torch::Tensor& early : take_gradients(toy)) EXPECT_FALSE(early.defined());
    EXPECT_TRUE(same(input, expected_input)) << "with" << (wants_input ? "" : "out") << " input";
    EXPECT_FALSE(x.grad().defined());
    split.run_weights();
    const auto gradients = take_gradients(toy);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(same(gradients[i], expected[i])) << toy.named_parameters()[i].key();
    }
    EXPECT_FALSE(x.grad().defined());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, SplitBackwardOf,
    testing::Values(std::pair{"chain", &ToyModule::chain}, std::pair{"residual", &ToyModule::residual},
                    std::pair{"repeated", &ToyModule::repeated}, std::pair{"computed", &ToyModule::computed},
                    std::pair{"chunks", &ToyModule::chunks}, std::pair{"recurrent", &ToyModule::recurrent},
                    std::pair{"aside", &ToyModule::aside}, std::pair{"without_input", &ToyModule::without_input},
                    std::pair{"without_weights", &ToyModule::without_weights},
                    std::pair{"nothing", &ToyModule::nothing}, std::pair{"loss", &ToyModule::loss}),
    [](const auto& info) { return std::string(info.param.first); });

TEST(SplitBackward, SeveralMicroBatchesAreUnderWayAtOnce) {
  at::set_num_threads(1);
  ToyModule toy;
  std::vector<torch::Tensor> inputs, gradients, expected;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(torch::randn({4, 6}).requires_grad_());
    gradients.push_back(torch::randn({4, 6}));
    toy.residual(inputs.back()).backward(gradients.back());
  }
  expected = take_gradients(toy);
  std::vector<std::unique_ptr<SplitBackward>> splits;
  for (auto& x : inputs) splits.push_back(std::make_unique<SplitBackward>(Tensors{toy.residual(x)}, Tensors{x}));
  for (size_t i = 0; i < splits.size(); ++i) {
    EXPECT_TRUE(at::equal(splits[i]->run_inputs({gradients[i]}).at(0), inputs[i].grad()));
  }
  for (auto& split : splits) split->run_weights();
  const auto actual = take_gradients(toy);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same(actual[i], expected[i]));
}

/// x · weight, and what each call of its backward pass is asked for.
struct Product : torch::autograd::Function<Product> {
  static inline std::vector<std::pair<bool, bool>> asked;
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    asked.emplace_back(context->needs_input_grad(0), context->needs_input_grad(1));
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

TEST(SplitBackward, NothingIsAskedForTwice) {
  Product::asked.clear();
  const torch::Tensor x = torch::randn({3}).requires_grad_(), weight = torch::randn({3}).requires_grad_();
  SplitBackward split({Product::apply(torch::tanh(Product::apply(x, weight)), weight)}, {x});
  split.run_inputs({torch::ones({3})});
  EXPECT_EQ(Product::asked, (std::vector<std::pair<bool, bool>>{{true, false}, {true, false}}));
  Product::asked.clear();
  split.run_weights();
  EXPECT_EQ(Product::asked, (std::vector<std::pair<bool, bool>>{{false, true}, {false, true}}));
}

/// A list of inputs, the last of which wants no gradient. Of the outputs two are inputs, one of them used nowhere else;
/// one is computed from two inputs, one from the first alone, and one from none. All use the same weights.
TEST(SplitBackward, ListsEqualTheWholeBitForBit) {
  at::set_num_threads(1);
  ToyModule toy;
  const Tensors inputs{torch::randn({8, 6}).requires_grad_(), torch::randn({8, 6}).requires_grad_(),
                       torch::randn({8, 6}).requires_grad_(), torch::randn({8, 6})};
  const auto outputs = [&] {
    return Tensors{inputs[1], inputs[2], toy.residual(inputs[0]) * inputs[1] + inputs[3], toy.chain(inputs[0]),
                   toy.first(inputs[3])};
  };
  Tensors gradients;
  for (const torch::Tensor& output : outputs()) gradients.push_back(torch::randn_like(output));
  torch::autograd::backward(outputs(), gradients);
  const Tensors expected = take_gradients(toy);
  Tensors expected_inputs;
  for (const torch::Tensor& input : inputs) expected_inputs.push_back(std::exchange(input.mutable_grad(), {}));

  SplitBackward split(outputs(), inputs);
  const Tensors actual_inputs = split.run_inputs(gradients);
  for (const torch::Tensor& early : take_gradients(toy)) EXPECT_FALSE(early.defined());
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(same(actual_inputs[i], expected_inputs[i])) << i;
  split.run_weights();
  const Tensors actual = take_gradients(toy);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(same(actual[i], expected[i])) << i;
}

/// What the second half does not need is gone after the first.
TEST(SplitBackward, FreesActivationsEarly) {
  ToyModule toy;
  const torch::Tensor x = torch::randn({8, 6}).requires_grad_();
  torch::Tensor inside = torch::tanh(toy.first(x));    // kept by tanh, and by the layer that follows
  torch::Tensor between = torch::sigmoid(inside * 2);  // kept by sigmoid alone
  const auto needed = inside.storage().getWeakStorageImpl(), free = between.storage().getWeakStorageImpl();
  SplitBackward split({toy.second(inside) + torch::sum(between)}, {x});
  inside.reset();
  between.reset();
  EXPECT_FALSE(free.expired());
  split.run_inputs({torch::ones({8, 6})});
  EXPECT_TRUE(free.expired());
  EXPECT_FALSE(needed.expired());
  split.run_weights();
  EXPECT_TRUE(needed.expired());
}

}  // namespace
}  // namespace trireme
