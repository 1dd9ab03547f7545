// Plans for captured modules: all devices as one mesh on which operators are sharded, or a pipeline of stages,
// whichever the cost model predicts to be faster.
//
// The counterpart of make_plan() (search.h) for any module. Pure functions on values. Threads: all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/plan/graph/graph_layout.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct GraphPlan {
  GraphLayout layout;
  Graph graph;                           ///< the graph of a micro-batch, with layers
  IntraOpPlan operators = {};            ///< strategy of each operator on the mesh of its stage
  Partition stages = {};                 ///< layers of each stage
  std::vector<bool> recompute = {};      ///< whether each stage recomputes its activations
  std::vector<double> stage_bytes = {};  ///< bytes per device of each stage
  double seconds = 0;                    ///< seconds of a step, without the optimizer
  double bytes = 0;                      ///< bytes of the fullest device
};

struct GraphPlanOptions {
  std::string layout = "auto";  ///< "auto", or a text of GraphLayout::to_string()
  double limit_bytes = 0;       ///< memory limit of a device; 0: what the cluster's devices have
  int num_layers = 16;          ///< upper bound on layers, at whose borders stages may begin
  StageSetting setting = {.type = NumberType::kFloat32, .gradient_bytes = 4, .state_bytes = 16};
};

struct GraphPlanReport {
  GraphPlan plan;
  std::vector<GraphPlan> others;  ///< other plans that fit, fastest first
};

/// Finds a plan. `graph_of` returns the graph for a number of samples, without layers. Throws UsageError for an invalid
/// layout, and Error if nothing fits.
GraphPlanReport plan_graph(const std::function<Graph(int64_t samples)>& graph_of, int64_t batch, const Cluster& cluster,
                           int num_devices, const GraphPlanOptions& options = {});

/// Returns the cluster of $TRIREME_CLUSTER, a preset or a file; else what `bench train --write-cluster` measured here
/// on such devices (cores if `otherwise` is "laptop"); else `otherwise`, where "laptop" has as many cores as this
/// machine.
Cluster cluster_at_hand(const std::string& otherwise);

}  // namespace trireme
