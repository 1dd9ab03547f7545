// Clusters the operators of a graph without layers into layers: in order, cut where few bytes cross.
#pragma once

#include "trireme/plan/graph/graph.h"

namespace trireme {

/// Returns the bytes that a cut before each operator would send: results of earlier operators that it or a later one
/// reads. Parameters and inputs do not count. `element_bytes`: bytes per element.
std::vector<double> crossing_bytes(const Graph& graph, double element_bytes);

/// Splits a sequence of items with `costs` into `num_layers` non-empty parts, minimizing the sum of `cut_costs` (of a
/// cut before each item), so that no part costs more than `slack` times the mean; if infeasible, the bound grows until
/// it is feasible. Returns the first item of each part. Exact: O(items² · layers).
std::vector<int> cut_into_layers(const std::vector<double>& costs, const std::vector<double>& cut_costs, int num_layers,
                                 double slack = 1.4);

/// Sets the layer of each operator of the graph. There are `num_layers` layers, or as many as there are operators if
/// these are fewer.
void cluster_layers(Graph& graph, const std::vector<double>& costs, int num_layers, double element_bytes = 4);

}  // namespace trireme
