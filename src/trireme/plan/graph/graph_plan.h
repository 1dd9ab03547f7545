// A layout for a graph that no configuration describes: all devices as one mesh on which operators are cut, or a
// pipeline of stages, whichever the cost model calls faster.
//
// What make_plan() (search.h) is for the trainer's models, for any module. Pure values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/plan/graph/graph_layout.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct GraphPlan {
  GraphLayout layout;
  Graph graph;                           ///< of a micro-batch, layers clustered
  IntraOpPlan operators = {};            ///< how each lies on the mesh of its stage
  Partition stages = {};                 ///< layers of each
  std::vector<bool> recompute = {};      ///< of each stage: activations are computed again instead of kept
  std::vector<double> stage_bytes = {};  ///< of a device of each stage
  double seconds = 0;                    ///< of a step, without the optimizer
  double bytes = 0;                      ///< of the fullest device
};

struct GraphPlanOptions {
  std::string layout = "auto";  ///< or one of GraphLayout::to_string()
  double limit_bytes = 0;       ///< of a device; 0: what the cluster's have
  int num_layers = 16;          ///< between which stages may begin
  StageSetting setting = {.type = NumberType::kFloat32, .gradient_bytes = 4, .state_bytes = 16};
};

struct GraphPlanReport {
  GraphPlan plan;
  std::vector<GraphPlan> others;  ///< that fit, the fastest first
};

/// `graph_of` gives the graph of so many samples, without layers. Throws UsageError for a layout that cannot be, and
/// Error where nothing fits.
GraphPlanReport plan_graph(const std::function<Graph(int64_t samples)>& graph_of, int64_t batch, const Cluster& cluster,
                           int num_devices, const GraphPlanOptions& options = {});

/// $TRIREME_CLUSTER, a preset or a file; else what `bench train --write-cluster` has measured of such devices here
/// (cores where `otherwise` is "laptop"); else `otherwise`, a laptop having as many cores as this machine.
Cluster cluster_at_hand(const std::string& otherwise);

}  // namespace trireme
