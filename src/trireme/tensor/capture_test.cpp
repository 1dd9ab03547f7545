#include "trireme/tensor/capture.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using torch::nn::functional::cross_entropy;

/// Attention, a convolution, BatchNorm, dropout, a skip connection, a constant, an operator in place, tied weights.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("token", token);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("batch", batch);
    register_module("head", head);
    scale = register_parameter("scale", torch::ones({8}));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = token(tokens) * scale;
    const auto parts = qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, 4}).unbind(2);
    const auto mixed = torch::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                                           parts[2].transpose(1, 2), {}, 0.0, true);
    x = mark(x + out(mixed.transpose(1, 2).reshape(x.sizes())), "attended");
    const auto skip = x;
    x = batch(conv(x.transpose(1, 2))).transpose(1, 2).contiguous();
    x.relu_();
    x = x + skip + torch::arange(x.size(1)).view({1, -1, 1}) * 0.01;
    if (p > 0) x = torch::dropout(x, p, is_training());
    return head(x) + torch::matmul(x, token->weight.t());
  }
  double p = 0;
  torch::nn::Embedding token{12, 8};
  torch::nn::Linear qkv{8, 24}, out{8, 8}, head{8, 12};
  torch::nn::Conv1d conv{torch::nn::Conv1dOptions(8, 8, 3).padding(1)};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::BatchNorm1d batch{8};
  torch::Tensor scale;
};
TORCH_MODULE(Net);

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return cross_entropy(logits.reshape({-1, 12}), targets.reshape({-1}));
}

std::vector<torch::Tensor> gradients_of(Net& net) {
  std::vector<torch::Tensor> gradients;
  for (auto& parameter : net->parameters()) {
    gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  for (const auto& buffer : net->buffers()) gradients.push_back(buffer.clone());
  return gradients;
}

TEST(Capture, RunsAgainToTheSameBits) {
  Net net;
  net->p = 0.2;
  const auto tokens = torch::randint(12, {3, 5}), targets = torch::randint(12, {3, 5});
  const auto weights = net->qkv->weight.detach().clone();
  const CapturedGraph graph =
      capture(*net, {tokens, targets}, [&](const auto& in) { return loss_of(net->forward(in[0]), in[1]); });
  EXPECT_TRUE(torch::equal(net->qkv->weight, weights));
  EXPECT_TRUE(torch::equal(net->batch->running_mean, torch::zeros({8})));
  EXPECT_EQ(graph.value(graph.output()).sizes, std::vector<int64_t>{});
  ASSERT_EQ(graph.marks().size(), 1);
  EXPECT_EQ(graph.near(graph.marks()[0].second), "out.bias");

  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.get_state();
  const auto expected = loss_of(net->forward(tokens), targets);
  expected.backward();
  auto expected_gradients = gradients_of(net);
  generator.set_state(state);
  net->batch->running_mean.zero_();
  net->batch->running_var.fill_(1);
  net->batch->num_batches_tracked.zero_();

  auto values = graph.start({tokens, targets});
  graph.run(0, graph.num_calls(), values);
  const auto got = values[static_cast<size_t>(graph.output())];
  EXPECT_TRUE(torch::equal(got, expected)) << got << expected;
  got.backward();
  const auto got_gradients = gradients_of(net);
  for (size_t i = 0; i < got_gradients.size(); ++i) {
    EXPECT_TRUE(torch::equal(got_gradients[i], expected_gradients[i])) << i;
  }
  int held = 0;  // results that nobody reads any more are gone
  for (size_t i = 0; i < values.size(); ++i) held += values[i].defined() && graph.values()[i].producer >= 0;
  EXPECT_EQ(held, 1);
}

TEST(Capture, LargeModulesNeedNoMemory) {
  torch::nn::Linear up(64, 64);  // a batch of 2^40 numbers
  const auto x = torch::zeros({1, 1}).expand({int64_t{1} << 34, 64});
  const CapturedGraph graph = capture(*up, {x}, [&](const auto& in) { return torch::gelu(up(in[0])).sum(); });
  EXPECT_EQ(graph.call(graph.num_calls() - 2).call.name, "aten::gelu");
  EXPECT_EQ(graph.value(graph.call(graph.num_calls() - 2).outputs[0]).sizes,
            (std::vector<int64_t>{int64_t{1} << 34, 64}));
}

TEST(Capture, RefusesWhatDependsOnData) {
  torch::nn::Linear linear(4, 4);
  const auto x = torch::randn({2, 4});
  const auto message = [&](const std::function<torch::Tensor(const torch::Tensor&)>& body) {
    try {
      capture(*linear, {x}, [&](const auto& in) { return body(in[0]); });
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("captured");
  };
  const auto branch = [&](const torch::Tensor& in) {
    const auto y = linear(in);
    return y.sum().item<float>() > 0 ? y : -y;
  };
  EXPECT_NE(message(branch).find("behind the use of bias"), std::string::npos) << message(branch);
  EXPECT_NE(message([&](const auto& in) { return linear(in).nonzero(); }).find("aten::nonzero"), std::string::npos);
  torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  try {
    capture(*layers, {x}, [&](const auto& in) {
      const auto y = layers->forward(in[0]);
      return y.max().template item<float>() > 1 ? y : -y;
    });
    ADD_FAILURE() << "captured";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("in or behind the module 1,"), std::string::npos) << error.what();
  }
  EXPECT_NE(message([&](const auto&) { return torch::ones({2}); }).find("neither its inputs nor"), std::string::npos);
  EXPECT_EQ(message([&](const auto& in) { return linear(in); }), "captured");
  EXPECT_FALSE(is_mesh_tensor(linear->weight));
  const CapturedGraph graph = capture(*linear, {x}, [&](const auto& in) { return linear(in[0]); });
  EXPECT_THROW(graph.start({torch::randn({3, 4})}), UsageError);
  EXPECT_THROW(graph.start({}), UsageError);
}

}  // namespace
}  // namespace trireme
