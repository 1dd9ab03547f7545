// A captured module as the planner sees it.
#include "trireme/parallel/automatic/operator_graph.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace trireme {
namespace {

struct InPlaceImpl : torch::nn::Module {
  InPlaceImpl() { register_module("linear", linear); }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = linear(x);
    y.relu_();
    y.mul_(x);
    return y;
  }
  torch::nn::Linear linear{4, 4};
};
TORCH_MODULE(InPlace);

TEST(OperatorGraph, KnowsWhichInputIsWritten) {
  InPlace net;
  const CapturedGraph captured =
      capture(*net, {torch::ones({2, 4})}, [&](const auto& in) { return net->forward(in[0]); });
  std::map<std::string, std::vector<int>> written;
  for (const GraphOperator& op : operator_graph(captured, "net").graph.operators) written[op.name] = op.written;
  ASSERT_TRUE(written.contains("relu_") && written.contains("mul_"));
  EXPECT_EQ(written["relu_"], std::vector<int>{0});
  EXPECT_EQ(written["mul_"], std::vector<int>{0});
  for (const auto& [name, inputs] : written) EXPECT_EQ(inputs.empty(), !name.ends_with('_')) << name;
}

}  // namespace
}  // namespace trireme
