#include "trireme/parallel/automatic/cut_module.h"

#include <gtest/gtest.h>

#include <map>

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

struct UncutTraining {
  Net net;
  double loss = 0;  ///< of the last step
};

/// The module as it is, in a loop of one's own: gradients of four micro-batches, summed along the tree.
UncutTraining train_uncut() {
  constexpr int kMicroBatches = 4;
  UncutTraining trained;
  torch::optim::SGD optimizer(trained.net->parameters(), 0.1);
  const std::vector<torch::Tensor> parameters = trained.net->parameters();
  for (int step = 0; step < kCutSteps; ++step) {
    const torch::Tensor input = input_of(step), target = target_of(step);
    std::vector<std::vector<torch::Tensor>> gradients;
    trained.loss = 0;
    for (int i = 0; i < kMicroBatches; ++i) {
      const int64_t size = input.size(0) / kMicroBatches;
      const torch::Tensor loss =
          net_loss(trained.net->forward(input.narrow(0, i * size, size)), target.narrow(0, i * size, size));
      gradients.push_back(torch::autograd::grad({loss / kMicroBatches}, parameters));
      trained.loss += (loss.detach() / kMicroBatches).item<double>();
    }
    for (size_t k = 0; k < parameters.size(); ++k) {
      parameters[k].mutable_grad() = (gradients[0][k] + gradients[1][k]) + (gradients[2][k] + gradients[3][k]);
    }
    optimizer.step();
  }
  return trained;
}

TEST(CutModule, TrainsToTheBitsOfTheWholeModule) {
  const UncutTraining expected = train_uncut();
  const auto train = [&](Communicator& comm, const std::vector<std::string>& points) {
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
    EXPECT_EQ(loss, expected.loss);
    std::map<std::string, torch::Tensor> whole;
    for (const auto& item : expected.net->named_parameters()) whole[item.key()] = item.value();
    size_t compared = 0;
    for (const torch::Tensor& own : pipeline.parameters()) {
      for (const auto& item : net->named_parameters()) {
        if (!item.value().is_same(own)) continue;
        EXPECT_TRUE(torch::equal(own, whole.at(item.key()))) << item.key();
        ++compared;
      }
    }
    EXPECT_EQ(compared, pipeline.parameters().size());
    EXPECT_GT(compared, 0u);
  };
  run_as_threads(1, [&](World& world) { train(world.comm(), {}); });
  run_as_threads(3, [&](World& world) { train(world.comm(), {"up", "middle"}); });
  run_as_threads(2, [&](World& world) { train(world.comm(), {"norm", "up", "last"}); });
}

}  // namespace
}  // namespace trireme
