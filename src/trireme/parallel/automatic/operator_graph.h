// A captured module as the planner sees it: the same operators, with what each costs.
#pragma once

#include "trireme/plan/graph/graph.h"
#include "trireme/tensor/capture.h"

namespace trireme {

struct OperatorGraph {
  Graph graph;                   ///< one layer, until somebody clusters it
  std::vector<int> operator_of;  ///< of each call; -1: a transposed parameter, which is a tensor of the graph
  std::vector<int> call_of;      ///< of each operator
};

/// FLOPs of products, convolutions and attention, bytes that others move, and what autograd keeps, by the kind of the
/// operators that read a value.
OperatorGraph operator_graph(const CapturedGraph& captured, std::string name);

}  // namespace trireme
