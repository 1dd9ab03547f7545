#include "trireme/plan/graph/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kBisections = 60;
constexpr double kHighsSeconds = 20;
/// Tolerated gap of a large problem, as a fraction of its cost: the costs themselves are less accurate.
constexpr double kSmallGap = 1e-4;
constexpr size_t kLargeProblem = 100;

/// Costs that differ by rounding count as equal.
bool is_close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)}); }

ChoiceSolution made(const ChoiceProblem& problem, std::vector<int> choices, ChoiceProof proof, double bound) {
  ChoiceSolution solution;
  solution.cost = problem.cost_of(choices);
  solution.bytes = problem.bytes_of(choices);
  solution.choices = std::move(choices);
  solution.lower_bound = proof == ChoiceProof::kOptimal ? solution.cost : bound;
  solution.proof = proof;
  return solution;
}

ChoiceSolution by_highs_alone(const ChoiceProblem& problem) {
  ChoiceSolution solution;
  if (solve_with_highs(problem, kHighsSeconds, solution)) return solution;
  throw Error("the graph is too entangled to be planned without HiGHS",
              has_highs() ? "cut it into fewer operators that depend on each other" : "./trireme --help brings it");
}

}  // namespace

double ChoiceProblem::cost_of(const std::vector<int>& choices) const {
  double cost = 0;
  for (size_t i = 0; i < nodes.size(); ++i) cost += nodes[i].costs[static_cast<size_t>(choices[i])];
  for (const ChoiceEdge& edge : edges) {
    const size_t width = nodes[static_cast<size_t>(edge.to)].costs.size();
    cost += edge.costs[static_cast<size_t>(choices[static_cast<size_t>(edge.from)]) * width +
                       static_cast<size_t>(choices[static_cast<size_t>(edge.to)])];
  }
  return cost;
}

double ChoiceProblem::bytes_of(const std::vector<int>& choices) const {
  double bytes = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].bytes.empty()) bytes += nodes[i].bytes[static_cast<size_t>(choices[i])];
  }
  return bytes;
}

void ChoiceProblem::check() const {
  for (const ChoiceNode& node : nodes) {
    if (node.costs.empty() || (!node.bytes.empty() && node.bytes.size() != node.costs.size())) {
      throw Error(fmt::format("a node of {} choices with {} sizes", node.costs.size(), node.bytes.size()));
    }
  }
  for (const ChoiceEdge& edge : edges) {
    const int count = static_cast<int>(nodes.size());
    if (edge.from < 0 || edge.from >= count || edge.to < 0 || edge.to >= count || edge.from == edge.to ||
        edge.costs.size() !=
            nodes[static_cast<size_t>(edge.from)].costs.size() * nodes[static_cast<size_t>(edge.to)].costs.size()) {
      throw Error(fmt::format("an edge from node {} to node {} with {} costs", edge.from, edge.to, edge.costs.size()));
    }
  }
}

// [Note: Memory multiplier]
// The minimum of cost + λ·bytes is found exactly for any λ; minus λ·limit it is a lower bound on the optimum. As λ
// grows the answer needs fewer bytes; bisection finds the first one within the limit. Pareto fronts close the gap
// between that answer and the bound.
ChoiceSolution solve(const ChoiceProblem& problem) {
  problem.check();
  std::vector<int> choices;
  if (problem.nodes.empty()) return made(problem, {}, ChoiceProof::kOptimal, 0);
  if (!eliminate(problem, 0, choices)) return by_highs_alone(problem);
  if (problem.cost_of(choices) >= kForbidden) return {};
  const double limit = problem.limit_bytes;
  if (limit <= 0 || problem.bytes_of(choices) <= limit) return made(problem, choices, ChoiceProof::kOptimal, 0);
  double bound = problem.cost_of(choices);

  // The least memory: minimizes bytes first, costs second.
  std::vector<int> smallest;
  ChoiceProblem by_bytes = problem;
  double largest_bytes = 0;
  for (ChoiceNode& node : by_bytes.nodes) {
    if (node.bytes.empty()) node.bytes.assign(node.costs.size(), 0);
    node.costs = node.bytes;
    for (const double bytes : node.bytes) largest_bytes += bytes;
  }
  for (ChoiceEdge& edge : by_bytes.edges) {
    for (double& cost : edge.costs) cost = cost >= kForbidden ? std::max(kForbidden, 10 * largest_bytes) : 0;
  }
  if (!eliminate(by_bytes, 0, smallest)) return by_highs_alone(problem);
  ChoiceSolution nothing;
  nothing.least_bytes = problem.bytes_of(smallest);
  if (nothing.least_bytes > limit) return nothing;

  double below = 0, above = std::max(bound, 1e-12) / std::max(limit, 1.0);
  std::vector<int> best = smallest;
  const auto attempt = [&](double multiplier) {
    eliminate(problem, multiplier, choices);
    const double cost = problem.cost_of(choices), bytes = problem.bytes_of(choices);
    bound = std::max(bound, cost + multiplier * (bytes - limit));
    if (bytes > limit) return false;
    if (cost < problem.cost_of(best)) best = choices;
    return true;
  };
  for (int i = 0; i < kBisections && !attempt(above); ++i) {
    below = above;
    above *= 8;
  }
  for (int i = 0; i < kBisections && !is_close(problem.cost_of(best), bound); ++i) {
    const double middle = (below + above) / 2;
    if (middle <= below || middle >= above || is_close(below / above, 1)) break;
    (attempt(middle) ? above : below) = middle;
  }
  if (is_close(problem.cost_of(best), bound)) return made(problem, best, ChoiceProof::kOptimal, bound);
  if (problem.nodes.size() > kLargeProblem && problem.cost_of(best) - bound < kSmallGap * bound) {
    return made(problem, best, ChoiceProof::kNearly, bound);
  }
  if (eliminate_fronts(problem, problem.cost_of(best), choices)) {
    return made(problem, choices, ChoiceProof::kOptimal, 0);
  }
  ChoiceSolution exact;
  if (solve_with_highs(problem, kHighsSeconds, exact)) return exact;
  return made(problem, best, ChoiceProof::kNearly, bound);
}

}  // namespace trireme
