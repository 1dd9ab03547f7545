#include "trireme/plan/graph/cluster_layers.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// All ways to cut, tried.
double best_of_all(const std::vector<double>& costs, const std::vector<double>& cuts, int layers, double bound) {
  double best = std::numeric_limits<double>::infinity();
  const int n = static_cast<int>(costs.size());
  const std::function<void(int, int, double)> go = [&](int begin, int left, double sum) {
    double part = 0;
    for (int end = begin + 1; end <= n; ++end) {
      part += costs[static_cast<size_t>(end - 1)];
      if (part > bound) return;
      if (left == 1 && end == n) best = std::min(best, sum);
      if (left > 1 && end < n) go(end, left - 1, sum + cuts[static_cast<size_t>(end)]);
    }
  };
  go(0, layers, 0);
  return best;
}

TEST(ClusterLayers, IsTheBestOfAll) {
  std::mt19937 random(5);
  const auto draw = [&](int below) { return static_cast<double>(random() % static_cast<unsigned>(below)); };
  int compared = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int n = 1 + static_cast<int>(random() % 9),
              layers = 1 + static_cast<int>(random() % static_cast<unsigned>(n));
    std::vector<double> costs, cuts;
    for (int i = 0; i < n; ++i) {
      costs.push_back(1 + draw(9));
      cuts.push_back(draw(20));
    }
    const std::vector<int> firsts = cut_into_layers(costs, cuts, layers);
    ASSERT_EQ(static_cast<int>(firsts.size()), layers);
    ASSERT_EQ(firsts[0], 0);
    double sum = 0;
    for (size_t i = 1; i < firsts.size(); ++i) {
      ASSERT_LT(firsts[i - 1], firsts[i]);
      sum += cuts[static_cast<size_t>(firsts[i])];
    }
    const double bound = 1.4 * std::accumulate(costs.begin(), costs.end(), 0.0) / layers;
    const double best = best_of_all(costs, cuts, layers, bound);
    if (best == std::numeric_limits<double>::infinity()) continue;  // the bound had to grow
    EXPECT_EQ(sum, best);
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(ClusterLayers, CutsWhereLittlePasses) {
  const Graph graph =
      graph_of({.kind = ModelKind::kGpt2, .layers = 4, .hidden = 64, .heads = 4, .seq = 32, .vocab = 96}, 2,
               {.element_bytes = 4});
  Graph clustered = graph;
  std::vector<double> costs(graph.operators.size(), 0);
  for (size_t o = 0; o < costs.size(); ++o) costs[o] = graph.operators[o].work.is_linear ? 1 : 0.01;
  cluster_layers(clustered, costs, 4);
  const std::vector<double> crossing = crossing_bytes(graph, 4);
  for (size_t o = 1; o < costs.size(); ++o) {
    if (clustered.operators[o].layer == clustered.operators[o - 1].layer) continue;
    EXPECT_EQ(crossing[o], 4.0 * 2 * 32 * 64) << "only the residual stream passes before " << graph.operators[o].name;
  }
  EXPECT_EQ(clustered.num_layers, 4);
  EXPECT_THROW(cut_into_layers({1, 2}, {0, 0}, 3), UsageError);
}

}  // namespace
}  // namespace trireme
