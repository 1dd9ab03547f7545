#include "trireme/parallel/pipeline/layer_costs.h"

#include <gtest/gtest.h>

#include "trireme/comm/world.h"
#include "trireme/parallel/pipeline/pipeline.h"

namespace trireme {
namespace {

using namespace torch::nn;

/// A cheap layer, a dear one without many parameters, and a cheap one with more of them.
struct DearImpl : Module {
  torch::Tensor forward(torch::Tensor x) {
    for (int i = 0; i < 200; ++i) x = torch::tanh(x);
    return x;
  }
};
TORCH_MODULE(Dear);

TEST(LayerCosts, AreTheSameOnAllRanksAndLeaveNothingBehind) {
  std::vector<LayerCosts> found(2);
  run_as_threads(2, [&](World& world) {
    at::set_num_threads(1);
    Sequential model(Linear(4, 8), BatchNorm1d(8), Linear(8, 3));
    LayerCosts& costs = found[static_cast<size_t>(world.rank())];
    costs = measure_layers(world.comm(), model, torch::ones({5, 4}));
    for (const torch::Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
    for (const auto& buffer : model->named_buffers()) {
      const double expected = buffer.key().ends_with("var") ? 8 : 0;
      EXPECT_EQ(buffer.value().sum().item<double>(), expected) << buffer.key();
    }
  });
  EXPECT_EQ(found[0].seconds, found[1].seconds);
  EXPECT_EQ(found[0].activation_bytes, found[1].activation_bytes);
  const std::vector<uint64_t> bytes{2 * 4 * (4 * 8 + 8), 2 * 4 * (8 + 8), 2 * 4 * (8 * 3 + 3)};
  EXPECT_EQ(found[0].bytes, bytes);
  for (const double seconds : found[0].seconds) EXPECT_GT(seconds, 0);
  EXPECT_GE(found[0].activation_bytes[0], 5 * 8 * 4u);  // its output
}

TEST(LayerCosts, CutAModelByWhatWasMeasured) {
  run_as_threads(2, [](World& world) {
    at::set_num_threads(1);
    Sequential model(Linear(64, 64), Dear(), Linear(64, 64), Linear(64, 64), Linear(64, 64));
    const LayerCosts costs = measure_layers(world.comm(), model, torch::randn({32, 64}));
    const auto dearest = std::max_element(costs.seconds.begin(), costs.seconds.end());
    EXPECT_EQ(dearest - costs.seconds.begin(), 1);
    const auto largest = std::max_element(costs.activation_bytes.begin(), costs.activation_bytes.end());
    EXPECT_EQ(largest - costs.activation_bytes.begin(), 1);
    const auto cut_by = [&](const std::vector<double>& some) {
      const Pipeline pipeline(world.comm(), model, {.num_micro_batches = 2, .costs = some});
      return partition_to_text(pipeline.partition());
    };
    EXPECT_EQ(cut_by(costs.seconds), "0-1,2-4");
    EXPECT_EQ(cut_by({}), "0-2,3-4");
  });
}

}  // namespace
}  // namespace trireme
