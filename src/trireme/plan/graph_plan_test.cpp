#include "trireme/plan/graph_plan.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

GraphPlanReport plan(const ModelConfig& model, int64_t batch, int devices, const GraphPlanOptions& options = {}) {
  return plan_graph([&](int64_t samples) { return graph_of(model, samples, {.element_bytes = 4}); }, batch,
                    find_cluster("laptop"), devices, options);
}

const ModelConfig kWide = {.kind = ModelKind::kMlp, .layers = 4, .hidden = 4096, .image = 28};
const ModelConfig kDeep = {.kind = ModelKind::kGpt2, .layers = 8, .hidden = 128, .heads = 4, .seq = 64, .vocab = 256};

TEST(GraphPlan, LayoutsAreText) {
  for (const char* text : {"mesh 4", "mesh 2x2", "pipeline 2x2x8", "pipeline 4x1x3"}) {
    EXPECT_EQ(graph_layout_from(text, 4).to_string(), text);
  }
  EXPECT_THROW(graph_layout_from("mesh 3", 4), UsageError);
  EXPECT_THROW(graph_layout_from("mesh", 1), UsageError);
  EXPECT_THROW(graph_layout_from("mesh 2x0", 2), UsageError);
  EXPECT_THROW(graph_layout_from("mesh 2 workers", 2), UsageError);
  EXPECT_THROW(graph_layout_from("pipeline 4", 4), UsageError);
  EXPECT_THROW(graph_layout_from("ring 4", 4), UsageError);
  EXPECT_THROW(plan(kDeep, 6, 4, {.layout = "pipeline 2x2x4"}), UsageError);
}

TEST(GraphPlan, TheChoiceIsTheFastestOfAll) {
  for (const ModelConfig& model : {kWide, kDeep}) {
    for (const int devices : {1, 2, 4, 6}) {
      const GraphPlanReport report = plan(model, 12, devices);
      for (const GraphPlan& other : report.others) {
        EXPECT_LE(report.plan.seconds, 1.005 * other.seconds);
        const GraphPlan again = plan(model, 12, devices, {.layout = other.layout.to_string()}).plan;
        EXPECT_EQ(again.seconds, other.seconds) << other.layout.to_string();
        if (other.layout.is_pipeline()) {
          EXPECT_EQ(static_cast<int>(other.stages.size()), other.layout.stages);
          EXPECT_EQ(other.stages.back().last, other.graph.num_layers);
        }
      }
    }
  }
}

TEST(GraphPlan, WeightsThatFitNowhereWholeAreCut) {
  const double whole = 16 * plan(kWide, 4, 1).plan.graph.num_parameters();
  EXPECT_THROW(plan(kWide, 4, 1, {.limit_bytes = 0.6 * whole}), Error);
  const GraphPlan found = plan(kWide, 4, 2, {.layout = "mesh 2", .limit_bytes = 0.6 * whole}).plan;
  EXPECT_LE(found.bytes, 0.6 * whole);
  int cut = 0;
  for (size_t o = 0; o < found.graph.operators.size(); ++o) {
    if (found.graph.operators[o].work.is_linear) cut += found.operators.strategies[o].inputs[1][0].is_shard();
  }
  EXPECT_GE(cut, 3);
}

}  // namespace
}  // namespace trireme
