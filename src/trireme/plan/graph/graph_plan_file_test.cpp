#include "trireme/plan/graph/graph_plan_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/plan/plan.h"

namespace trireme {
namespace {

const ModelShape kModel = {.kind = ModelKind::kGpt2, .layers = 4, .hidden = 64, .heads = 4, .seq = 16, .vocab = 32};

std::function<Graph(int64_t)> graphs_of(const ModelShape& model) {
  return [model](int64_t samples) { return graph_of(model, samples, {.element_bytes = 4}); };
}

GraphPlan plan(const std::string& layout, int devices) {
  return plan_graph(graphs_of(kModel), 8, find_cluster("laptop"), devices, {.layout = layout}).plan;
}

std::string text_of(const GraphPlan& plan) { return graph_plan_to_json(plan, 8, "laptop"); }

TEST(GraphPlanFile, WhatIsReadIsWhatWasWritten) {
  for (const auto& [layout, devices] : std::vector<std::pair<std::string, int>>{
           {"mesh 2", 2}, {"mesh 2x2", 4}, {"pipeline 2x2x2", 4}, {"stages 1+3 in 2", 4}, {"stages 1x2+2 in 4", 4}}) {
    GraphPlan made = plan(layout, devices);
    made.recompute[0] = true;
    const GraphPlan read = graph_plan_of(graph_plan_from_json(text_of(made), "plan.json"), graphs_of(kModel), 8);
    EXPECT_EQ(read.layout, made.layout);
    EXPECT_EQ(read.recompute, made.recompute);
    EXPECT_EQ(read.seconds, made.seconds);
    ASSERT_EQ(read.operators.strategies.size(), made.operators.strategies.size());
    for (size_t o = 0; o < read.operators.strategies.size(); ++o) {
      EXPECT_EQ(read.operators.strategies[o].inputs, made.operators.strategies[o].inputs) << layout << " " << o;
      EXPECT_EQ(read.operators.strategies[o].outputs, made.operators.strategies[o].outputs) << layout << " " << o;
      const int layer = made.graph.operators[o].layer, stage = read.graph.operators[o].layer;
      EXPECT_GE(layer, made.stages[static_cast<size_t>(stage)].first);
      EXPECT_LT(layer, made.stages[static_cast<size_t>(stage)].last);
    }
    EXPECT_EQ(text_of(read), text_of(made));
  }
}

/// What reading the text says; empty: nothing is wrong.
std::string refusal(const std::string& text, const ModelShape& model = kModel, int64_t batch = 8, int world = 4) {
  try {
    const GraphPlanFile file = graph_plan_from_json(text, "plan.json");
    check_world(file, world);
    graph_plan_of(file, graphs_of(model), batch);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t found = text.find(from);
  EXPECT_NE(found, text.npos) << from;
  return text.replace(found, from.size(), to);
}

TEST(GraphPlanFile, SaysWhatDiffers) {
  const std::string text = text_of(plan("stages 1+3 in 2", 4));
  EXPECT_EQ(refusal(text), "");
  const auto expect = [](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), said.npos) << said;
  };
  expect(refusal(text, kModel, 8, 3), "plan.json is a plan for 4 workers, and there are 3");
  expect(refusal(text, kModel, 16), "for steps of 8 samples, and this one has 16");
  ModelShape other = kModel;
  other.hidden = 32;
  expect(refusal(text, other), "for another module or for other sizes: operator 0 is");
  other = kModel;
  other.layers = 5;
  expect(refusal(text, other), "another module");
  expect(refusal("{"), "is no JSON");
  expect(refusal(changed(text, "\"layout\"", "\"layuot\"")), "\"layout\" is missing");
  expect(refusal(changed(text, "\"cluster\"", "\"extra\": 1,\n\"cluster\"")), "\"extra\" is unknown");
  expect(refusal(changed(text, "\"mesh\": \"3\"", "\"mesh\": \"1x3\"")),
         "stage 1 has the mesh 1x3, and 3 in the layout");
  expect(refusal(changed(text, "\"operators\": \"0-", "\"operators\": \"1-")), "should begin with 0");
  expect(refusal(changed(text, "stages 1+3 in 2", "stages 1+2 in 2")), "is for 3 workers");
  expect(refusal(changed(text, "at [replicate", "at [torn")), "operator 0:");
  // Placements that nobody can compute: the first operator's output lies otherwise than its inputs say.
  const size_t arrow = text.find(" -> ");
  const std::string tail = changed(text.substr(arrow), "at [replicate]", "at [shard(0)]");
  expect(refusal(text.substr(0, arrow) + tail), "no rule computes operator 0 as");
  // Each kind of plan in the other's place.
  EXPECT_THROW(plan_from_json(text, "plan.json"), UsageError);
  try {
    plan_from_json(text, "plan.json");
  } catch (const UsageError& error) {
    expect(error.what(), "parallelize()");
  }
  expect(refusal(changed(text, "trireme graph plan 1", "trireme plan 1")), "its \"format\" is \"trireme plan 1\"");
}

TEST(GraphPlanFile, AnEditedPlacementIsTaken) {
  // Replicas instead of whatever was planned: every operator has that way.
  GraphPlan made = plan("mesh 2", 2);
  const auto all = strategies_of(made.graph, {{2}});
  const auto is_whole = [](const std::vector<std::vector<Placement>>& list) {
    return std::all_of(list.begin(), list.end(), [](const auto& one) { return one[0].is_replicate(); });
  };
  for (size_t o = 0; o < all.size(); ++o) {
    const auto way = std::find_if(all[o].begin(), all[o].end(), [&](const OperatorStrategy& each) {
      return is_whole(each.inputs) && is_whole(each.outputs);
    });
    ASSERT_NE(way, all[o].end()) << made.graph.operators[o].name;
    made.operators.strategies[o] = *way;
  }
  const GraphPlan read = graph_plan_of(graph_plan_from_json(text_of(made), "plan.json"), graphs_of(kModel), 8);
  for (const OperatorStrategy& each : read.operators.strategies) EXPECT_TRUE(is_whole(each.inputs));
}

}  // namespace
}  // namespace trireme
