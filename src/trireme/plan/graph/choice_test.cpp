// Choices against exhaustive search: hundreds of random graphs, with and without limits, by elimination and by HiGHS.
#include "trireme/plan/graph/choice.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

enum class Shape { kChain, kTree, kRing, kDense };

ChoiceProblem random_problem(std::mt19937& random, Shape shape, int nodes, bool whole_numbers) {
  const auto number = [&](int most) {
    return whole_numbers ? static_cast<double>(random() % static_cast<unsigned>(most))
                         : std::uniform_real_distribution<double>(0, most)(random);
  };
  ChoiceProblem problem;
  for (int n = 0; n < nodes; ++n) {
    ChoiceNode node;
    const size_t choices = 1 + random() % 4;
    for (size_t i = 0; i < choices; ++i) {
      node.costs.push_back(number(10));
      node.bytes.push_back(number(10));
    }
    problem.nodes.push_back(node);
  }
  const auto join = [&](int a, int b) {
    ChoiceEdge edge{a, b, {}};
    const size_t count =
        problem.nodes[static_cast<size_t>(a)].costs.size() * problem.nodes[static_cast<size_t>(b)].costs.size();
    for (size_t i = 0; i < count; ++i) edge.costs.push_back(random() % 12 == 0 ? kForbidden : number(10));
    problem.edges.push_back(edge);
  };
  for (int n = 1; n < nodes; ++n) {
    if (shape == Shape::kTree) join(static_cast<int>(random() % static_cast<unsigned>(n)), n);
    if (shape == Shape::kChain || shape == Shape::kRing) join(n - 1, n);
    for (int other = 0; shape == Shape::kDense && other < n; ++other) {
      if (random() % 3 != 0) join(n, other);
    }
  }
  if (shape == Shape::kRing && nodes > 2) join(0, nodes - 1);
  return problem;
}

/// Of all choices; infinity where there is none.
double best_of_all(const ChoiceProblem& problem) {
  std::vector<int> choices(problem.nodes.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    const double cost = problem.cost_of(choices);
    const bool keeps = problem.limit_bytes <= 0 || problem.bytes_of(choices) <= problem.limit_bytes;
    if (keeps && cost < kForbidden) best = std::min(best, cost);
    size_t n = 0;
    while (n < choices.size() && ++choices[n] == static_cast<int>(problem.nodes[n].costs.size())) choices[n++] = 0;
    if (n == choices.size()) return best;
  }
}

TEST(Choice, IsTheBestOfAll) {
  std::mt19937 random(7);
  int limited = 0, infeasible = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const auto shape = static_cast<Shape>(trial % 4);
    ChoiceProblem problem = random_problem(random, shape, 1 + static_cast<int>(random() % 6), trial % 2 == 0);
    if (trial % 3 != 0) problem.limit_bytes = 1 + static_cast<double>(random() % 40);
    const double best = best_of_all(problem);
    const ChoiceSolution solution = solve(problem);
    if (std::isinf(best)) {
      EXPECT_EQ(solution.proof, ChoiceProof::kInfeasible) << trial;
      EXPECT_TRUE(solution.choices.empty());
      ++infeasible;
      continue;
    }
    ASSERT_EQ(solution.proof, ChoiceProof::kOptimal) << trial;
    EXPECT_NEAR(solution.cost, best, 1e-9) << trial;
    EXPECT_NEAR(problem.cost_of(solution.choices), best, 1e-9) << trial;
    if (problem.limit_bytes > 0) {
      EXPECT_LE(problem.bytes_of(solution.choices), problem.limit_bytes) << trial;
      ++limited;
    }
  }
  EXPECT_GT(limited, 100);
  EXPECT_GT(infeasible, 20);
}

TEST(Choice, AgreesWithHighs) {
  if (!has_highs()) GTEST_SKIP() << "this build has no HiGHS";
  std::mt19937 random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const auto shape = static_cast<Shape>(trial % 4);
    ChoiceProblem problem = random_problem(random, shape, 3 + static_cast<int>(random() % 8), false);
    if (trial % 3 != 0) problem.limit_bytes = 5 + static_cast<double>(random() % 60);
    const ChoiceSolution ours = solve(problem);
    ChoiceSolution theirs;
    ASSERT_TRUE(solve_with_highs(problem, 60, theirs)) << trial;
    ASSERT_EQ(ours.proof, theirs.proof) << trial;
    EXPECT_NEAR(ours.cost, theirs.cost, 1e-6 * (1 + ours.cost)) << trial;
  }
}

TEST(Choice, LongChainsAreFast) {  // 600 nodes with a binding limit: a multiplier, not a search
  std::mt19937 random(3);
  ChoiceProblem problem = random_problem(random, Shape::kChain, 600, false);
  for (ChoiceEdge& edge : problem.edges) {
    for (double& cost : edge.costs) cost = cost >= kForbidden ? 10 : cost;
  }
  const ChoiceSolution free = solve(problem);
  problem.limit_bytes = 0.9 * free.bytes;
  const ChoiceSolution held = solve(problem);
  ASSERT_NE(held.proof, ChoiceProof::kInfeasible);
  EXPECT_LE(held.bytes, problem.limit_bytes);
  EXPECT_GE(held.cost, held.lower_bound - 1e-9);
  EXPECT_LE(held.cost, 1.01 * held.lower_bound);
}

TEST(Choice, SaysHowLittleMemoryWouldDo) {
  ChoiceProblem problem;
  problem.nodes = {{{1, 2}, {10, 6}}, {{1, 2}, {10, 7}}};
  problem.limit_bytes = 12;
  const ChoiceSolution solution = solve(problem);
  EXPECT_EQ(solution.proof, ChoiceProof::kInfeasible);
  EXPECT_EQ(solution.least_bytes, 13);
}

TEST(Choice, RefusesNonsense) {
  ChoiceProblem problem;
  problem.nodes = {{{1, 2}, {}}, {{}, {}}};
  EXPECT_THROW(solve(problem), Error);
  problem.nodes = {{{1, 2}, {}}, {{3}, {}}};
  problem.edges = {{0, 1, {1}}};
  EXPECT_THROW(solve(problem), Error);
}

}  // namespace
}  // namespace trireme
