// A choice for every node of a graph, so that the costs of nodes and of edges together are least, within a memory
// limit: what the intra-operator pass comes down to. Plain numbers, no operators here.
#pragma once

#include <vector>

namespace trireme {

/// An edge cost of this much or more cannot be taken.
constexpr double kForbidden = 1e15;

struct ChoiceNode {
  std::vector<double> costs;  ///< of each choice, at least 0
  std::vector<double> bytes;  ///< of each choice; empty: 0
};
struct ChoiceEdge {
  int from = 0, to = 0;       ///< nodes, different ones
  std::vector<double> costs;  ///< of choice i of `from` with choice j of `to`: [i * choices of `to` + j]
};
struct ChoiceProblem {
  std::vector<ChoiceNode> nodes;
  std::vector<ChoiceEdge> edges;
  double limit_bytes = 0;  ///< of all nodes together; 0: none

  double cost_of(const std::vector<int>& choices) const;
  double bytes_of(const std::vector<int>& choices) const;
  /// Throws Error for lists of other lengths, and edges to nowhere.
  void check() const;
};

enum class ChoiceProof {
  kOptimal,     ///< nothing is cheaper within the limit
  kNearly,      ///< nothing is cheaper than `lower_bound`
  kUnproven,    ///< within the limit; there may be something cheaper, and nobody knows by how much
  kInfeasible,  ///< no choice keeps the limit, or every one takes a forbidden edge
};

struct ChoiceSolution {
  std::vector<int> choices;  ///< empty where infeasible
  double cost = 0, bytes = 0;
  double lower_bound = 0;
  double least_bytes = 0;  ///< of any choice, where infeasible
  ChoiceProof proof = ChoiceProof::kInfeasible;
};

/// The best choice. Nodes are eliminated one by one, those with the fewest neighbours first, which is exact; memory is
/// held by a multiplier, and what is left between its bound and its answer is closed by fronts of (cost, bytes), or by
/// HiGHS where these grow too long. The answer is kNearly where both give up, or
/// where a large problem is within 0.01 % of its bound.
ChoiceSolution solve(const ChoiceProblem& problem);

/// Least cost + multiplier · bytes, without a limit. Returns false where tables would grow over `most_entries`.
bool eliminate(const ChoiceProblem& problem, double multiplier, std::vector<int>& choices, double most_entries = 2e7);

/// The exact optimum under the limit, from fronts of (cost, bytes); false where they grow too long.
/// `at_most`: a cost that is known to be possible.
bool eliminate_fronts(const ChoiceProblem& problem, double at_most, std::vector<int>& choices,
                      double most_labels = 3e5);

/// The same problem as an integer program. Returns false where HiGHS is not there, or runs out of time.
bool solve_with_highs(const ChoiceProblem& problem, double most_seconds, ChoiceSolution& solution);
/// Whether it can be loaded.
bool has_highs();

}  // namespace trireme
