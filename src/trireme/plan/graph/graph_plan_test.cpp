#include "trireme/plan/graph/graph_plan.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

GraphPlanReport plan(const ModelShape& model, int64_t batch, int devices, const GraphPlanOptions& options = {}) {
  return plan_graph([&](int64_t samples) { return graph_of(model, samples, {.element_bytes = 4}); }, batch,
                    find_cluster("laptop"), devices, options);
}

const ModelShape kWide = {.kind = ModelKind::kMlp, .layers = 4, .hidden = 4096, .image = 28};
const ModelShape kDeep = {.kind = ModelKind::kGpt2, .layers = 8, .hidden = 128, .heads = 4, .seq = 64, .vocab = 256};

TEST(GraphPlan, LayoutsAreText) {
  for (const char* text : {"mesh 4", "mesh 2x2", "pipeline 2x2x8", "pipeline 4x1x3", "stages 1+3 in 2",
                           "stages 1x2+2x1 in 4", "stages 2+1+1 in 8"}) {
    EXPECT_EQ(graph_layout_from(text, 4).to_string(), text);
  }
  EXPECT_THROW(graph_layout_from("mesh 3", 4), UsageError);
  EXPECT_THROW(graph_layout_from("mesh", 1), UsageError);
  EXPECT_THROW(graph_layout_from("mesh 2x0", 2), UsageError);
  EXPECT_THROW(graph_layout_from("mesh 2 workers", 2), UsageError);
  EXPECT_THROW(graph_layout_from("pipeline 4", 4), UsageError);
  EXPECT_THROW(graph_layout_from("ring 4", 4), UsageError);
  EXPECT_THROW(graph_layout_from("stages 4 in 2", 4), UsageError);
  EXPECT_THROW(graph_layout_from("stages 2+2", 4), UsageError);
  EXPECT_THROW(graph_layout_from("stages 2+3 in 2", 4), UsageError);
  EXPECT_THROW(graph_layout_from("stages 2+1x1x2 in 2", 4), UsageError);
  EXPECT_THROW(graph_layout_from("stages 2+2 in x", 4), UsageError);
  EXPECT_EQ(graph_layout_from("stages 1+1 in 4", 2).to_string(), "pipeline 2x1x4");
  EXPECT_THROW(plan(kDeep, 6, 4, {.layout = "pipeline 2x2x4"}), UsageError);
}

TEST(GraphPlan, TheChoiceIsTheFastestOfAll) {
  for (const ModelShape& model : {kWide, kDeep}) {
    for (const int devices : {1, 2, 4, 6}) {
      const GraphPlanReport report = plan(model, 12, devices);
      for (const GraphPlan& other : report.others) {
        EXPECT_LE(report.plan.seconds, 1.005 * other.seconds);
        const GraphPlan again = plan(model, 12, devices, {.layout = other.layout.to_string()}).plan;
        EXPECT_EQ(again.seconds, other.seconds) << other.layout.to_string();
        if (other.layout.is_pipeline()) {
          EXPECT_EQ(static_cast<int>(other.stages.size()), other.layout.num_stages());
          EXPECT_EQ(other.stages.back().last, other.graph.num_layers);
          EXPECT_EQ(other.operators.proof, ChoiceProof::kUnproven) << "slices of solutions for the whole graph";
        } else {
          EXPECT_TRUE(other.operators.proof == ChoiceProof::kOptimal || other.operators.proof == ChoiceProof::kNearly);
        }
      }
    }
  }
}

TEST(GraphPlan, StagesStayInsideHostsWhereLinksBetweenThemAreSlow) {
  Cluster cluster = find_cluster("laptop");
  cluster.devices_per_host = 2;
  cluster.between = {.bandwidth = 1e8, .latency_us = 20};
  const GraphPlan found =
      plan_graph([&](int64_t samples) { return graph_of(kDeep, samples, {.element_bytes = 4}); }, 16, cluster, 4).plan;
  ASSERT_TRUE(found.layout.is_pipeline()) << found.layout.to_string();
  int first = 0, largest = 0;
  for (const StageMesh& mesh : found.layout.meshes) {
    EXPECT_EQ(first / 2, (first + mesh.num_devices() - 1) / 2) << found.layout.to_string();
    largest = std::max(largest, mesh.num_devices());
    first += mesh.num_devices();
  }
  EXPECT_EQ(largest, 2) << found.layout.to_string();
  // For six devices in hosts of three, too, and in others whose best stages would lie across hosts.
  for (const int per_host : {2, 3}) {
    cluster.devices_per_host = per_host;
    for (const GraphPlan& plan :
         plan_graph([&](int64_t samples) { return graph_of(kWide, samples, {.element_bytes = 4}); }, 24, cluster, 6)
             .others) {
      int rank = 0;
      for (const StageMesh& mesh : plan.layout.meshes) {
        const bool is_inside = rank / per_host == (rank + mesh.num_devices() - 1) / per_host;
        const bool fills = rank % per_host == 0 && mesh.num_devices() % per_host == 0;
        EXPECT_TRUE(is_inside || fills) << plan.layout.to_string() << " in hosts of " << per_host;
        rank += mesh.num_devices();
      }
    }
  }
}

TEST(GraphPlan, EarlyStagesComputeAgainWhereMemoryIsShort) {
  // Many samples, so that activations are most of the memory; 1F1B holds 4, 3, 2 and 1 micro-batches of them.
  const GraphPlan free = plan(kDeep, 64, 4, {.layout = "pipeline 4x1x8"}).plan;
  EXPECT_EQ(free.recompute, std::vector<bool>(4, false));
  bool found = false;
  double before = free.seconds;
  for (double fraction = 0.95; fraction > 0.5; fraction -= 0.05) {
    const double limit = fraction * free.bytes;
    const GraphPlan less = plan(kDeep, 64, 4, {.layout = "pipeline 4x1x8", .limit_bytes = limit}).plan;
    EXPECT_LE(less.bytes, limit);
    EXPECT_GE(less.seconds, before * 0.999) << fraction;
    before = less.seconds;
    EXPECT_FALSE(less.recompute[3]) << fraction;  // it holds one micro-batch: nothing would be gained
    for (size_t s = 0; s + 1 < 4; ++s) EXPECT_GE(less.recompute[s], less.recompute[s + 1]) << fraction;
    found = found || (less.recompute[0] && !less.recompute[2]);
  }
  EXPECT_TRUE(found);
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
