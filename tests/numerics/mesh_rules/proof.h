// Proves the rules of operators: each is called with its inputs in all layouts, on meshes of several shapes, and must
// give what the plain operator gives, forward and gradients, without ranks disagreeing.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct ProofOptions {
  std::vector<std::string> meshes = {"tp=2", "tp=3", "tp=4", "dp=2,tp=2"};
  /// Layouts of the inputs that are tried, a call and a mesh; drawn where there are more.
  int most_cases = 24;
  std::string only;                ///< operators whose names contain this
  std::vector<std::string> lines;  ///< calls (proof_call.h); none: proof_lines()
};

/// What was found out about an operator.
struct OperatorProof {
  std::string name;                ///< with "aten::"
  bool is_made_of_others = false;  ///< libtorch's own composition: no rule needed
  bool needs_gpu = false;          ///< no such kernel on a CPU: not proven here
  int cases = 0;                   ///< layouts that gave the right result
  int refused = 0;                 ///< writes in place where the layout cannot stay: an error that says so
  int gradients = 0;               ///< cases whose gradients were right, too
  int without_moving = 0;          ///< cases with a cut or partial input in which no collective was needed
  std::string error;               ///< the first wrong case, or the rule that is missing; empty: proven
};

/// Operators that have a rule or a line in proof_lines(), in the order of their names. Runs ranks as threads; not to be
/// called twice at once, since it sets strict mode.
std::vector<OperatorProof> prove_rules(const ProofOptions& options = {});

/// The page docs/mesh_operators.md: the table of covered operators, the same wherever it is made.
std::string operator_page(const std::vector<OperatorProof>& proofs);

}  // namespace trireme
