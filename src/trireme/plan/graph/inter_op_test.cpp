// Compares the inter-operator pass with exhaustive search, and checks it on fast and slow devices.
#include "trireme/plan/graph/inter_op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Enumerates every partition of layers and devices.
void try_all(const InterOpProblem& problem, int first, int units, std::vector<InterOpStage>& stages, double& best) {
  if (first == problem.num_layers) {
    if (units != 0) return;
    const int count = static_cast<int>(stages.size());
    if (problem.most_stages > 0 && count > problem.most_stages) return;
    for (int i = 0; i < count; ++i) {
      InterOpStage& stage = stages[static_cast<size_t>(i)];
      stage.seconds = problem.seconds(stage.layers, stage.mesh, count - i);
    }
    best = std::min(best, pipeline_seconds(stages, problem.micro_batches));
    return;
  }
  for (int last = first + 1; last <= problem.num_layers; ++last) {
    for (size_t mesh = 0; mesh < problem.mesh_units.size(); ++mesh) {
      const int own = problem.mesh_units[mesh];
      if (own > units) continue;
      stages.push_back({{first, last}, static_cast<int>(mesh), 0});
      try_all(problem, last, units - own, stages, best);
      stages.pop_back();
    }
  }
}

TEST(InterOp, IsTheBestOfAllPlans) {
  std::mt19937 random(23);
  int none = 0;
  for (int trial = 0; trial < 300; ++trial) {
    InterOpProblem problem;
    problem.num_layers = 1 + static_cast<int>(random() % 6);
    problem.num_units = 1 + static_cast<int>(random() % 6);
    problem.mesh_units = {1, 2, 4};
    problem.mesh_units.resize(1 + random() % 3);
    problem.micro_batches = 1 + static_cast<int>(random() % 12);
    if (random() % 4 == 0) problem.most_stages = 1 + static_cast<int>(random() % 3);
    std::vector<double> work, speed;
    for (int i = 0; i < problem.num_layers; ++i) work.push_back(1 + static_cast<double>(random() % 100) / 10);
    for (const int units : problem.mesh_units)
      speed.push_back(std::pow(units, 0.5 + static_cast<double>(random() % 6) / 10));
    const double memory = static_cast<double>(random() % 60);
    std::map<std::tuple<int, int, int, int>, int> asked;
    problem.seconds = [&](const LayerRange& layers, int mesh, int to_end) {
      double sum = 0;
      for (int i = layers.first; i < layers.last; ++i) sum += work[static_cast<size_t>(i)];
      const int units = problem.mesh_units[static_cast<size_t>(mesh)];
      if (trial % 2 == 0 && sum * (1 + 0.2 * to_end) / units > memory) return std::numeric_limits<double>::infinity();
      return sum / speed[static_cast<size_t>(mesh)];
    };
    double best = std::numeric_limits<double>::infinity();
    std::vector<InterOpStage> stages;
    try_all(problem, 0, problem.num_units, stages, best);
    const std::optional<InterOpPlan> plan = plan_stages(problem);
    if (std::isinf(best)) {
      EXPECT_FALSE(plan.has_value()) << trial;
      ++none;
      continue;
    }
    ASSERT_TRUE(plan.has_value()) << trial;
    EXPECT_NEAR(plan->seconds, best, 1e-9 * best) << trial;
    int next = 0, units = 0;
    for (const InterOpStage& stage : plan->stages) {
      EXPECT_EQ(stage.layers.first, next);
      next = stage.layers.last;
      units += problem.mesh_units[static_cast<size_t>(stage.mesh)];
    }
    EXPECT_EQ(next, problem.num_layers);
    EXPECT_EQ(units, problem.num_units);
  }
  EXPECT_GT(none, 10);
}

TEST(InterOp, OneMicroBatchWantsNoPipeline) {
  InterOpProblem problem{.num_layers = 8, .num_units = 4, .mesh_units = {1, 2, 4}, .micro_batches = 1};
  problem.seconds = [&](const LayerRange& layers, int mesh, int) {
    return (layers.last - layers.first) / std::pow(0.9 * problem.mesh_units[static_cast<size_t>(mesh)], 0.9);
  };
  EXPECT_EQ(plan_stages(problem)->stages.size(), 1u);
  problem.micro_batches = 64;
  EXPECT_EQ(plan_stages(problem)->stages.size(), 4u);
}

TEST(InterOp, ToleranceLosesLittle) {
  InterOpProblem problem{.num_layers = 20, .num_units = 8, .mesh_units = {1, 2, 4, 8}, .micro_batches = 32};
  std::mt19937 random(1);
  std::vector<double> work;
  for (int i = 0; i < 20; ++i) work.push_back(1 + static_cast<double>(random() % 1000) / 1000);
  problem.seconds = [&](const LayerRange& layers, int mesh, int) {
    double sum = 0;
    for (int i = layers.first; i < layers.last; ++i) sum += work[static_cast<size_t>(i)];
    return sum / std::pow(problem.mesh_units[static_cast<size_t>(mesh)], 0.93);
  };
  const double exact = plan_stages(problem)->seconds;
  problem.tolerance = 0.01;
  EXPECT_LE(plan_stages(problem)->seconds, 1.01 * exact);
}

TEST(InterOp, RefusesNothing) { EXPECT_THROW(plan_stages({.num_layers = 0, .mesh_units = {1}}), UsageError); }

}  // namespace
}  // namespace trireme
