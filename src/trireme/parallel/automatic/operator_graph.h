// A captured module as the planner sees it: the same operators, each with its cost.
#pragma once

#include "trireme/plan/graph/graph.h"
#include "trireme/tensor/capture.h"

namespace trireme {

struct OperatorGraph {
  Graph graph;                   ///< has one layer, until operators are clustered
  std::vector<int> operator_of;  ///< operator of each call; -1: transposed parameter, which is a tensor of the graph
  std::vector<int> call_of;      ///< call of each operator
};

/// Counts FLOPs of matmuls, convolutions and attention, bytes moved by other operators, and bytes that autograd keeps,
/// which depend on the operators that read a value.
OperatorGraph operator_graph(const CapturedGraph& captured, std::string name);

}  // namespace trireme
