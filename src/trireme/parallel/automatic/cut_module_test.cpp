#include "trireme/parallel/automatic/cut_module.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/parallel/automatic/automatic_test_util.h"
#include "trireme/parallel/pipeline/pipeline.h"

namespace trireme {
namespace {

constexpr int kCutSteps = 5;

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
    for (int step = 0; step < kCutSteps; ++step) {
      loss = pipeline.step(input_of(step), target_of(step), net_loss);
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
