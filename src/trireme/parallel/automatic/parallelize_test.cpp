#include "trireme/parallel/automatic/parallelize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/comm/world.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/test_folder.h"
#include "trireme/parallel/automatic/cut_module.h"
#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

/// No sequence: a skip connection from the first layer to the last.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    int64_t count = 1;  // the same numbers in every thread
    for (const auto& [name, linear] : {std::pair("first", first), {"up", up}, {"down", down}, {"last", last}}) {
      register_module(name, linear);
      const torch::NoGradGuard no_grad;
      for (auto& p : linear->parameters()) {
        p.copy_(torch::sin(torch::arange(p.numel()).to(torch::kFloat) * 1.7 + count++).view(p.sizes()) * 0.3);
      }
    }
    register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = torch::tanh(first(x));
    const auto z = mark(y + down(torch::gelu(up(norm(y)))), "middle");
    return last(torch::relu(z)) + y.narrow(1, 0, 4);
  }
  torch::nn::Linear first{6, 16}, up{16, 32}, down{32, 16}, last{16, 4};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
};
TORCH_MODULE(Net);

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}
torch::Tensor input_of(int step) {
  return torch::cos(torch::arange(12 * 6).to(torch::kFloat) * (0.37 + step)).view({12, 6});
}
torch::Tensor target_of(int step) { return (torch::arange(12) * 7 + step) % 4; }

struct Result {
  std::vector<double> losses;
  std::vector<torch::Tensor> weights;
};

constexpr int kSteps = 5;

Result alone() {
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), 0.01);
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(net(input_of(step)), target_of(step));
    loss.backward();
    optimizer.step();
    result.losses.push_back(loss.item<double>());
  }
  for (const auto& p : net->parameters()) result.weights.push_back(p.detach().clone());
  return result;
}

TEST(Parallelize, TrainsAsOneWorkerInEveryLayout) {
  const Result expected = alone();
  for (const auto& [ranks, plan] : std::vector<std::pair<int, std::string>>{{1, "auto"},
                                                                            {2, "auto"},
                                                                            {4, "auto"},
                                                                            {2, "mesh 2"},
                                                                            {3, "mesh 3"},
                                                                            {4, "mesh 2x2"},
                                                                            {2, "pipeline 2x1x3"},
                                                                            {3, "pipeline 3x1x2"},
                                                                            {4, "pipeline 2x2x3"},
                                                                            {3, "stages 1+2 in 3"},
                                                                            {4, "stages 2+2 in 2"},
                                                                            {4, "stages 3+1 in 4"}}) {
    run_as_threads(ranks, [&](World& world) {
      Net net;
      torch::optim::AdamW optimizer(net->parameters(), 0.01);
      const auto training = parallelize(world.comm(), net, loss_of, optimizer, {.plan = plan});
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(training->step(input_of(step), target_of(step)), expected.losses[static_cast<size_t>(step)], 2e-6)
            << plan << " step " << step;
        if (step == 2) training->gather();  // and goes on
      }
      training->gather();
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_FALSE(is_mesh_tensor(parameters[i]));
        EXPECT_LT((parameters[i] - expected.weights[i]).abs().max().item<double>(), 2e-5) << plan << " " << i;
      }
      EXPECT_NE(training->describe().find(training->plan().layout.to_string()), std::string::npos);
    });
  }
}

TEST(Parallelize, StagesRunEverySynchronousSchedule) {
  const Result expected = alone();
  for (const std::string schedule : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    run_as_threads(3, [&](World& world) {
      Net net;
      torch::optim::AdamW optimizer(net->parameters(), 0.01);
      const auto training =
          parallelize(world.comm(), net, loss_of, optimizer, {.plan = "stages 2+1 in 4", .schedule = schedule});
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(training->step(input_of(step), target_of(step)), expected.losses[static_cast<size_t>(step)], 2e-6)
            << schedule << " step " << step;
      }
      EXPECT_EQ(training->plan().layout.to_string(), "stages 2+1 in 4");
    });
  }
  run_as_threads(3, [&](World& world) {
    for (const std::string schedule : {"pipedream", "interleaved", "zb-v"}) {
      Net net;
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      const auto training =
          parallelize(world.comm(), net, loss_of, optimizer, {.plan = "stages 2+1 in 4", .schedule = schedule});
      EXPECT_THROW(training->step(input_of(0), target_of(0)), UsageError) << schedule;
    }
  });
}

TEST(Parallelize, WorkersHoldTheParametersOfTheirStageAlone) {
  run_as_threads(3, [](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto training = parallelize(world.comm(), net, loss_of, optimizer, {.plan = "stages 1+2 in 3"});
    training->step(input_of(0), target_of(0));
    const GraphPlan& plan = training->plan();
    const int stage = world.rank() == 0 ? 0 : 1;
    int own = 0;
    for (const auto& [name, lies] :
         placements_of(plan.graph, plan.operators, plan.stages[static_cast<size_t>(stage)])) {
      EXPECT_TRUE(is_mesh_tensor(*net->named_parameters().find(name))) << name;
      ++own;
    }
    for (const auto& item : net->named_parameters()) {
      if (is_mesh_tensor(item.value())) continue;
      ++own;
      EXPECT_EQ(item.value().storage().nbytes(), sizeof(float)) << item.key();
    }
    EXPECT_EQ(own, static_cast<int>(net->parameters().size()));
    training->gather();
    for (const auto& item : net->named_parameters()) EXPECT_FALSE(is_mesh_tensor(item.value()));
  });
}

TEST(Parallelize, RunsFromThePlanThatItWrote) {
  const TestFolder folder;
  const std::string path = (folder / "plan.json").string();
  const auto train = [&](World& world, const ParallelizeOptions& options) {
    Net net;
    torch::optim::AdamW optimizer(net->parameters(), 0.01);
    const auto training = parallelize(world.comm(), net, loss_of, optimizer, options);
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) losses.push_back(training->step(input_of(step), target_of(step)));
    return std::pair(losses, training->plan().layout.to_string());
  };
  for (const auto& [ranks, plan] : std::vector<std::pair<int, std::string>>{
           {2, "mesh 2"}, {2, "pipeline 2x1x4"}, {3, "stages 1+2 in 3"}, {4, "auto"}}) {
    run_as_threads(ranks, [&](World& world) {
      const auto first = train(world, {.plan = plan, .write_plan = path});
      world.comm().barrier();
      EXPECT_EQ(train(world, {.plan = path}), first) << plan;
    });
  }
  run_as_threads(2, [&](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    EXPECT_THROW(parallelize(world.comm(), net, loss_of, optimizer, {.plan = path}), UsageError);  // for 4 workers
    EXPECT_THROW(parallelize(world.comm(), net, loss_of, optimizer, {.plan = "lost.json"}), UsageError);
    const auto nowhere = parallelize(world.comm(), net, loss_of, optimizer,
                                     {.plan = "mesh 2", .write_plan = (folder / "lost/plan.json").string()});
    EXPECT_THROW(nowhere->step(input_of(0), target_of(0)), UsageError);
    const auto training = parallelize(world.comm(), net, loss_of, optimizer, {.plan = "mesh 2", .write_plan = path});
    training->step(input_of(0), target_of(0));
    training->gather();
    world.comm().barrier();
    const auto half = parallelize(world.comm(), net, loss_of, optimizer, {.plan = path});
    EXPECT_THROW(half->step(input_of(0).narrow(0, 0, 6), target_of(0).narrow(0, 0, 6)), UsageError);
    const auto other = parallelize(world.comm(), net, [](const auto& x, const auto& y) { return loss_of(x * 2, y); },
                                   optimizer, {.plan = path});
    EXPECT_THROW(other->step(input_of(0), target_of(0)), UsageError);
  });
}

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
            parallelize(world.comm(), net, loss_of, optimizer, {.plan = layout, .limit_bytes = limit_bytes});
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
      for (double share = 0.95; share > 0.4; share -= 0.05) {
        losses = train(share * bytes, &again, &ignored);
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
        const auto training = parallelize(world.comm(), net, loss_of, optimizer, options);
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

TEST(Parallelize, RunsThePlacementsOfThePlan) {
  run_as_threads(2, [](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    // So little memory that weights must be cut.
    const auto training = parallelize(world.comm(), net, loss_of, optimizer, {.plan = "mesh 2", .limit_bytes = 20000});
    training->step(input_of(0), target_of(0));
    int cut = 0;
    const auto placements = placements_of(training->plan().graph, training->plan().operators, {0, 99});
    for (const auto& [name, text] : placements) {
      const auto& parameter = *net->named_parameters().find(name);
      const Placement& lies = placements_of(parameter)[0];
      EXPECT_EQ(text, fmt::format("[{}]", lies.to_string())) << name;
      cut += lies.is_shard();
    }
    EXPECT_GE(cut, 2);
    EXPECT_EQ(placements.size(), net->parameters().size());
    training->gather();
  });
}

TEST(Parallelize, SaysWhatIsWrong) {
  run_as_threads(2, [](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    EXPECT_THROW(parallelize(world.comm(), net, loss_of, optimizer, {.plan = "mesh 3"}), UsageError);
    EXPECT_THROW(parallelize(world.comm(), net, loss_of, optimizer, {.plan = "best"}), UsageError);
    const auto training = parallelize(world.comm(), net, loss_of, optimizer, {.plan = "mesh 2"});
    EXPECT_THROW(training->step(input_of(0), target_of(0).narrow(0, 0, 3)), UsageError);
    training->step(input_of(0), target_of(0));
    EXPECT_THROW(training->step(input_of(0).narrow(0, 0, 6), target_of(0).narrow(0, 0, 6)), UsageError);
    EXPECT_THROW(parallelize(world.comm(), net, loss_of, optimizer), UsageError);  // twice
    training->gather();
    const auto small = parallelize(world.comm(), net, loss_of, optimizer, {.limit_bytes = 100});
    EXPECT_THROW(small->step(input_of(0), target_of(0)), Error);
    const auto data = parallelize(
        world.comm(), net,
        [](const torch::Tensor& output, const torch::Tensor& target) {
          return output.sum().item<double>() > 0 ? loss_of(output, target) : -loss_of(output, target);
        },
        optimizer);
    EXPECT_THROW(data->step(input_of(0), target_of(0)), Error);
  });
}

TEST(CutModule, SkipConnectionsPassTheStagesBetween) {
  Net net;
  const auto example = input_of(0).narrow(0, 0, 4);
  const auto forward = [&](const torch::Tensor& x) { return net->forward(x); };
  auto layers = cut_module(*net, example, forward, {"norm", "middle", "last"});
  ASSERT_EQ(layers.size(), 4);
  torch::Tensor x = example;
  std::vector<int64_t> sizes;
  for (auto& layer : layers) {
    x = layer.forward<torch::Tensor>(x);
    sizes.push_back(x.numel());
  }
  EXPECT_TRUE(torch::equal(x, net(example)));
  EXPECT_EQ(sizes[0], 4 * 16);      // y alone
  EXPECT_EQ(sizes[1], 2 * 4 * 16);  // y and z
  size_t parameters = 0;
  for (auto& layer : layers) parameters += layer.ptr()->parameters().size();
  EXPECT_EQ(parameters, net->parameters().size());
  EXPECT_THROW(cut_module(*net, example, forward, {"lost"}), UsageError);
  EXPECT_THROW(cut_module(*net, example, forward, {"first"}), UsageError);
}

TEST(CutModule, TrainsToTheBitsOfTheWholeModule) {
  const auto train = [](Communicator& comm, const std::vector<std::string>& points) {
    Net net;
    const auto example = input_of(0).narrow(0, 0, 3);
    Pipeline pipeline(comm,
                      cut_module(
                          *net, example, [&](const auto& x) { return net->forward(x); }, points),
                      {.num_micro_batches = 4});
    torch::optim::SGD optimizer(pipeline.parameters(), 0.1);
    double loss = 0;
    for (int step = 0; step < kSteps; ++step) {
      loss = pipeline.step(input_of(step), target_of(step), loss_of);
      optimizer.step();
    }
    return loss;
  };
  double expected = 0;
  run_as_threads(1, [&](World& world) { expected = train(world.comm(), {}); });
  run_as_threads(3, [&](World& world) { EXPECT_EQ(train(world.comm(), {"up", "middle"}), expected); });
  run_as_threads(2, [&](World& world) { EXPECT_EQ(train(world.comm(), {"norm", "up", "last"}), expected); });
}

}  // namespace
}  // namespace trireme
