// parallelize() on modules as libtorch's users write them: every layout trains as one worker does.
#include "trireme/parallel/automatic/parallelize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/world.h"

namespace trireme {
namespace {

namespace nn = torch::nn;

/// Attention, norms, a residual stream, embeddings.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : norm1(nn::LayerNormOptions({width})),
        norm2(nn::LayerNormOptions({width})),
        qkv(width, 3 * width),
        out(width, width),
        up(width, 4 * width),
        down(4 * width, width) {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor forward(torch::Tensor x) {
    const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2), heads = 4;
    const auto parts = qkv(norm1(x)).view({batch, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + out(mixed.transpose(1, 2).reshape({batch, tokens, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    register_module("token", token);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block(32));
    register_module("blocks", blocks);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = token(tokens);
    for (auto& block : *blocks) x = block->as<Block>()->forward(x);
    return is_tied ? torch::matmul(x, token->weight.t()) + head->bias : head(x);
  }
  bool is_tied = false;
  nn::Embedding token{24, 32};
  nn::ModuleList blocks;
  nn::Linear head{32, 24};
};
TORCH_MODULE(Transformer);

/// The first stage and the last have one matrix together.
struct TiedTransformerImpl : TransformerImpl {
  TiedTransformerImpl() { is_tied = true; }
};
TORCH_MODULE(TiedTransformer);

/// Convolutions with a skip connection.
struct ImageNetImpl : nn::Module {
  ImageNetImpl() {
    register_module("stem", stem);
    register_module("inner", inner);
    register_module("norm", norm);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& image) {
    const auto x = torch::relu(stem(image));
    const auto y = torch::relu(norm(inner(x))) + x;
    return head(torch::max_pool2d(y, 2).mean({2, 3}));
  }
  nn::Conv2d stem{nn::Conv2dOptions(2, 8, 3).padding(1)}, inner{nn::Conv2dOptions(8, 8, 3).padding(1)};
  nn::GroupNorm norm{nn::GroupNormOptions(4, 8)};
  nn::Linear head{8, 24};
};
TORCH_MODULE(ImageNet);

template <typename Net>
Net make() {
  Net net;
  const torch::NoGradGuard no_grad;
  double phase = 1;  // the same in every thread
  for (auto& item : net->named_parameters()) {
    torch::Tensor p = item.value();
    if (p.dim() > 1) {
      p.copy_(torch::sin(torch::arange(p.numel()).to(torch::kFloat) * 1.37 + phase++).view(p.sizes()) * 0.2);
    } else if (item.key().ends_with("bias")) {
      p.zero_();
    }
  }
  return net;
}

torch::Tensor wave(at::IntArrayRef sizes, double speed) {
  return torch::cos(torch::arange(c10::multiply_integers(sizes)).to(torch::kFloat) * speed).view(sizes);
}

struct SmallBatch {
  torch::Tensor input, target;
};
SmallBatch batch_of(const std::string& kind, int step) {
  if (kind == "image") return {wave({8, 2, 8, 8}, 0.3 + 0.01 * step), (torch::arange(8) * 5) % 24};
  const auto tokens = (torch::arange(8 * 13) * 3 + step).view({8, 13}) % 24;
  return {tokens.narrow(1, 0, 12), tokens.narrow(1, 1, 12)};
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& target) {
  return nn::functional::cross_entropy(logits.reshape({-1, 24}), target.reshape({-1}));
}

struct ParallelizeCase {
  std::string kind;
  int ranks;
  std::string plan;
};
std::ostream& operator<<(std::ostream& out, const ParallelizeCase& c) {
  return out << fmt::format("{} {} {}", c.kind, c.ranks, c.plan);
}

constexpr int kParallelizeSteps = 6;

template <typename Net>
void compare(const ParallelizeCase& c) {
  at::set_num_threads(1);  // rank threads share the cores
  Net one = make<Net>();
  torch::optim::SGD optimizer(one->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < kParallelizeSteps; ++step) {
    const SmallBatch batch = batch_of(c.kind, step);
    optimizer.zero_grad();
    const auto loss = loss_of(one->forward(batch.input), batch.target);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  EXPECT_LT(losses.back(), losses.front());
  run_as_threads(c.ranks, [&](World& world) {
    Net net = make<Net>();
    torch::optim::SGD own(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
    const auto training = parallelize(world.comm(), net, loss_of, own, {.plan = c.plan});
    for (int step = 0; step < kParallelizeSteps; ++step) {
      const SmallBatch batch = batch_of(c.kind, step);
      EXPECT_NEAR(training->step(batch.input, batch.target), losses[static_cast<size_t>(step)], 1e-5) << step;
    }
    training->gather();
    const auto expected = one->named_parameters(), got = net->named_parameters();
    for (const auto& item : expected) {
      const double largest = item.value().abs().max().template item<double>();
      const double apart = (item.value() - *got.find(item.key())).abs().max().template item<double>();
      EXPECT_LT(apart, 1e-4 * largest + 1e-6) << item.key();
    }
  });
}

class Parallelize : public testing::TestWithParam<ParallelizeCase> {};

TEST_P(Parallelize, TrainsAsOneWorker) {
  if (GetParam().kind == "image") {
    compare<ImageNet>(GetParam());
  } else if (GetParam().kind == "tied") {
    compare<TiedTransformer>(GetParam());
  } else {
    compare<Transformer>(GetParam());
  }
}

std::vector<ParallelizeCase> cases() {
  std::vector<ParallelizeCase> all;
  for (const char* kind : {"tokens", "tied", "image"}) {
    for (const auto& [ranks, plan] : std::vector<std::pair<int, std::string>>{{2, "auto"},
                                                                              {4, "auto"},
                                                                              {2, "mesh 2"},
                                                                              {3, "mesh 3"},
                                                                              {4, "mesh 2x2"},
                                                                              {2, "pipeline 2x1x4"},
                                                                              {3, "pipeline 3x1x8"},
                                                                              {4, "pipeline 2x2x2"},
                                                                              {3, "stages 1+2 in 4"},
                                                                              {3, "stages 2+1 in 2"},
                                                                              {4, "stages 1x2+2x1 in 4"},
                                                                              {4, "stages 2x1+1x2 in 2"},
                                                                              {4, "stages 1+3 in 2"},
                                                                              {5, "stages 2+1+2 in 4"}}) {
      all.push_back({kind, ranks, plan});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, Parallelize, testing::ValuesIn(cases()));

}  // namespace
}  // namespace trireme
