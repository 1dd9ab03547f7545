// Layers for a graph that has none: its operators in their order, cut where little passes.
#pragma once

#include "trireme/plan/graph/graph.h"

namespace trireme {

/// Bytes of results that are made before each operator and read by it or a later one: what a cut there would send.
/// Parameters and inputs are not counted. `element_bytes` of every number.
std::vector<double> crossing_bytes(const Graph& graph, double element_bytes);

/// Cuts a sequence of things with `costs` into `num_layers` parts, none empty, at the least sum of `cut_costs` (of a
/// cut before each thing), so that no part costs more than `slack` times an equal part; where that cannot be, the
/// bound grows until it can. Returns the first thing of each part. Exact: O(things² · layers).
std::vector<int> cut_into_layers(const std::vector<double>& costs, const std::vector<double>& cut_costs, int num_layers,
                                 double slack = 1.4);

/// Sets the layer of each operator of the graph. At most `num_layers`, as many as there are operators.
void cluster_layers(Graph& graph, const std::vector<double>& costs, int num_layers, double element_bytes = 4);

}  // namespace trireme
