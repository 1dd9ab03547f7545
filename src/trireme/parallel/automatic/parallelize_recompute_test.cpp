// Stages that compute their activations again: where memory is short, and with the same numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/file.h"
#include "trireme/comm/world.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/folder_test_util.h"
#include "trireme/parallel/automatic/automatic_test_util.h"
#include "trireme/parallel/automatic/parallelize.h"

namespace trireme {
namespace {

/// Wide activations, so that they are most of the memory.
struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    for (int64_t i = 0; i < 6; ++i) {
      layers.push_back(register_module(fmt::format("layer{}", i), torch::nn::Linear(i == 0 ? 6 : 16, i == 5 ? 4 : 16)));
      const torch::NoGradGuard no_grad;
      for (auto& p : layers.back()->parameters()) {
        p.copy_(torch::sin(torch::arange(p.numel()).to(torch::kFloat) * 1.3 + 1.0 + static_cast<double>(i))
                    .view(p.sizes()) *
                0.4);
      }
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      if (i + 1 < layers.size()) x = torch::tanh(x) * torch::sigmoid(x) + torch::gelu(x);
    }
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Deep);

TEST(Parallelize, StagesThatComputeAgainGiveTheSameNumbers) {
  const auto batch = [](int step) {
    return torch::cos(torch::arange(240 * 6).to(torch::kFloat) * (0.37 + step)).view({240, 6});
  };
  const auto target = [](int step) { return (torch::arange(240) * 7 + step) % 4; };
  for (const auto& [ranks, layout] :
       std::vector<std::pair<int, std::string>>{{3, "pipeline 3x1x6"}, {4, "stages 1+2+1 in 6"}}) {
    run_as_threads(ranks, [&](World& world) {
      const auto train = [&](double limit_bytes, std::vector<bool>* recompute, double* bytes) {
        Deep net;
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        const auto training =
            parallelize(world.comm(), net, net_loss, optimizer, {.plan = layout, .limit_bytes = limit_bytes});
        std::vector<double> losses;
        for (int step = 0; step < 3; ++step) losses.push_back(training->step(batch(step), target(step)));
        *recompute = training->plan().recompute;
        *bytes = training->plan().bytes;
        EXPECT_EQ(training->describe().find("computed again") != std::string::npos, recompute->at(0));
        return losses;
      };
      std::vector<bool> kept, again;
      double bytes = 0, ignored = 0;
      const std::vector<double> expected = train(0, &kept, &bytes);
      EXPECT_EQ(kept, std::vector<bool>(3, false));
      // Less and less, until the first stage computes again.
      std::vector<double> losses;
      for (double fraction = 0.95; fraction > 0.4; fraction -= 0.05) {
        losses = train(fraction * bytes, &again, &ignored);
        if (again[0]) break;
      }
      EXPECT_TRUE(again[0]) << layout;
      EXPECT_FALSE(again[2]) << layout;
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << layout << " " << i;
    });
  }
}

/// What a forward pass does beside its output: moving averages, random numbers.
struct StatefulImpl : torch::nn::Module {
  StatefulImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("middle", middle);
    register_module("norm2", norm2);
    register_module("last", last);
    const torch::NoGradGuard no_grad;
    double phase = 1;
    for (auto& p : parameters()) {
      p.copy_(torch::sin(torch::arange(p.numel()).to(torch::kFloat) * 1.7 + phase++).view(p.sizes()) * 0.3 + 0.1);
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::gelu(norm2(middle(drop(torch::tanh(norm(first(x))))))));
  }
  torch::nn::Linear first{6, 16}, middle{16, 16}, last{16, 4};
  torch::nn::BatchNorm1d norm{16}, norm2{16};
  torch::nn::Dropout drop{0.25};
};
TORCH_MODULE(Stateful);

TEST(Parallelize, WhatIsComputedAgainHappensOnce) {
  const TestFolder folder;
  const std::string path = (folder / "plan.json").string(), again = (folder / "again.json").string();
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::string>>{
           {3, "stages 1+2 in 3"}, {3, "stages 2+1 in 2"}, {4, "stages 2+2 in 3"}}) {
    run_as_threads(ranks, [&](World& world) {
      const auto train = [&](const ParallelizeOptions& options) {
        Stateful net;
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        const auto training = parallelize(world.comm(), net, net_loss, optimizer, options);
        std::vector<torch::Tensor> results;
        for (int step = 0; step < 3; ++step) {
          results.push_back(torch::tensor(training->step(input_of(step), target_of(step)), torch::kDouble));
        }
        training->gather();
        for (const auto& item : net->named_parameters()) results.push_back(item.value().detach().clone());
        for (const auto& item : net->named_buffers()) results.push_back(item.value().clone());
        return results;
      };
      const auto kept = train({.plan = layout, .write_plan = path, .seed = 7});
      if (world.rank() == 0) {
        std::string text = read_whole_file(path, 1 << 20);
        for (size_t at = 0; (at = text.find("\"recompute\": false", at)) != text.npos; ++at) {
          text.replace(at, 18, "\"recompute\": true");
        }
        replace_file(again, text);
      }
      world.comm().barrier();
      const auto repeated = train({.plan = again, .seed = 7});
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(repeated[i], kept[i])) << layout << " " << i;
    });
  }
}

}  // namespace
}  // namespace trireme
