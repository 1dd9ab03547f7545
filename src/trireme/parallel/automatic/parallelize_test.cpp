#include "trireme/parallel/automatic/parallelize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/observe/folder_test_util.h"
#include "trireme/parallel/automatic/automatic_test_util.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

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
    const auto loss = net_loss(net(input_of(step)), target_of(step));
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
      const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = plan});
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

struct DropNetImpl : torch::nn::Module {
  DropNetImpl() { register_module("linear", linear); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::dropout(linear(x), 0.5, is_training()); }
  torch::nn::Linear linear{6, 4};
};
TORCH_MODULE(DropNet);

TEST(Parallelize, EveryStepDropsOtherElements) {
  run_as_threads(2, [](World& world) {
    DropNet net;
    torch::optim::SGD optimizer(net->parameters(), 0.0);
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = "mesh 2"});
    std::set<double> losses;
    for (int step = 0; step < 4; ++step) losses.insert(training->step(input_of(0), target_of(0)));
    EXPECT_EQ(losses.size(), 4u);
  });
}

TEST(Parallelize, StagesRunEverySynchronousSchedule) {
  const Result expected = alone();
  for (const ScheduleKind kind : schedule_kinds()) {
    const std::string schedule(name_of(kind));
    const bool runs = is_synchronous(kind) && stages_per_rank(kind) == 1;
    run_as_threads(3, [&](World& world) {
      Net net;
      torch::optim::AdamW optimizer(net->parameters(), 0.01);
      const auto training =
          parallelize(world.comm(), net, net_loss, optimizer, {.plan = "stages 2+1 in 4", .schedule = schedule});
      if (!runs) {
        EXPECT_THROW(training->step(input_of(0), target_of(0)), UsageError) << schedule;
        return;
      }
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(training->step(input_of(step), target_of(step)), expected.losses[static_cast<size_t>(step)], 2e-6)
            << schedule << " step " << step;
      }
      EXPECT_EQ(training->plan().layout.to_string(), "stages 2+1 in 4");
    });
  }
}

TEST(Parallelize, WorkersHoldTheParametersOfTheirStageAlone) {
  run_as_threads(3, [](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = "stages 1+2 in 3"});
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
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, options);
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
    EXPECT_THROW(parallelize(world.comm(), net, net_loss, optimizer, {.plan = path}), UsageError);  // for 4 workers
    EXPECT_THROW(parallelize(world.comm(), net, net_loss, optimizer, {.plan = "lost.json"}), UsageError);
    const auto nowhere = parallelize(world.comm(), net, net_loss, optimizer,
                                     {.plan = "mesh 2", .write_plan = (folder / "lost/plan.json").string()});
    EXPECT_THROW(nowhere->step(input_of(0), target_of(0)), UsageError);
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = "mesh 2", .write_plan = path});
    training->step(input_of(0), target_of(0));
    training->gather();
    world.comm().barrier();
    const auto half = parallelize(world.comm(), net, net_loss, optimizer, {.plan = path});
    EXPECT_THROW(half->step(input_of(0).narrow(0, 0, 6), target_of(0).narrow(0, 0, 6)), UsageError);
    const auto other = parallelize(world.comm(), net, [](const auto& x, const auto& y) { return net_loss(x * 2, y); },
                                   optimizer, {.plan = path});
    EXPECT_THROW(other->step(input_of(0), target_of(0)), UsageError);
  });
}

TEST(Parallelize, RunsThePlacementsOfThePlan) {
  run_as_threads(2, [](World& world) {
    Net net;
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    // So little memory that weights must be cut.
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = "mesh 2", .limit_bytes = 20000});
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
    EXPECT_THROW(parallelize(world.comm(), net, net_loss, optimizer, {.plan = "mesh 3"}), UsageError);
    EXPECT_THROW(parallelize(world.comm(), net, net_loss, optimizer, {.plan = "best"}), UsageError);
    const auto training = parallelize(world.comm(), net, net_loss, optimizer, {.plan = "mesh 2"});
    EXPECT_THROW(training->step(input_of(0), target_of(0).narrow(0, 0, 3)), UsageError);
    training->step(input_of(0), target_of(0));
    EXPECT_THROW(training->step(input_of(0).narrow(0, 0, 6), target_of(0).narrow(0, 0, 6)), UsageError);
    EXPECT_THROW(parallelize(world.comm(), net, net_loss, optimizer), UsageError);  // twice
    training->gather();
    const auto small = parallelize(world.comm(), net, net_loss, optimizer, {.limit_bytes = 100});
    EXPECT_THROW(small->step(input_of(0), target_of(0)), Error);
    const auto data = parallelize(
        world.comm(), net,
        [](const torch::Tensor& output, const torch::Tensor& target) {
          return output.sum().item<double>() > 0 ? net_loss(output, target) : -net_loss(output, target);
        },
        optimizer);
    EXPECT_THROW(data->step(input_of(0), target_of(0)), Error);
  });
}

}  // namespace
}  // namespace trireme
