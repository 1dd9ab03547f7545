// Choice problems: one choice for every node of a graph, minimizing the sum of node and edge costs within a memory
// limit. The intra-operator pass reduces to this. Plain numbers, no operators.
#pragma once

#include <vector>

namespace trireme {

/// Edges with this cost or more are forbidden.
constexpr double kForbidden = 1e15;

struct ChoiceNode {
  std::vector<double> costs;  ///< cost of each choice, at least 0
  std::vector<double> bytes;  ///< bytes of each choice; empty: 0
};
struct ChoiceEdge {
  int from = 0, to = 0;       ///< two different nodes
  std::vector<double> costs;  ///< cost of choice i of `from` with choice j of `to`, at [i * choices of `to` + j]
};
struct ChoiceProblem {
  std::vector<ChoiceNode> nodes;
  std::vector<ChoiceEdge> edges;
  double limit_bytes = 0;  ///< limit on the sum over nodes; 0: none

  double cost_of(const std::vector<int>& choices) const;
  double bytes_of(const std::vector<int>& choices) const;
  /// Throws Error for lists of the wrong length and for edges to unknown nodes.
  void check() const;
};

enum class ChoiceProof {
  kOptimal,     ///< no cheaper answer exists within the limit
  kNearly,      ///< no answer is cheaper than `lower_bound`
  kUnproven,    ///< within the limit, without a bound on how much cheaper another answer could be
  kInfeasible,  ///< every choice exceeds the limit or takes a forbidden edge
};

struct ChoiceSolution {
  std::vector<int> choices;  ///< empty if infeasible
  double cost = 0, bytes = 0;
  double lower_bound = 0;
  double least_bytes = 0;  ///< if infeasible: the least bytes of any choice
  ChoiceProof proof = ChoiceProof::kInfeasible;
};

/// Solves the problem. Variable elimination, fewest neighbours first, is exact; a Lagrange multiplier enforces the
/// memory limit, and Pareto fronts of (cost, bytes), or HiGHS if the fronts grow too long, close the remaining gap.
/// Returns kNearly if both give up, or if a large problem is within 0.01 % of its bound.
ChoiceSolution solve(const ChoiceProblem& problem);

/// Minimizes cost + multiplier · bytes without a limit. Returns false if a table would exceed `most_entries`.
bool eliminate(const ChoiceProblem& problem, double multiplier, std::vector<int>& choices, double most_entries = 2e7);

/// Finds the exact optimum within the limit from Pareto fronts of (cost, bytes); returns false if they grow too long.
/// `at_most`: a cost that is known to be feasible.
bool eliminate_fronts(const ChoiceProblem& problem, double at_most, std::vector<int>& choices,
                      double most_labels = 3e5);

/// Solves the same problem as an integer program. Returns false if HiGHS is not available or times out.
bool solve_with_highs(const ChoiceProblem& problem, double most_seconds, ChoiceSolution& solution);
/// Whether HiGHS can be loaded.
bool has_highs();

}  // namespace trireme
