// Pipeline stages for captured modules: layers, a mesh and placements for each.
//
// Runs the inter-operator pass on the intra-operator solutions for each mesh. If memory is short, a stage may shard
// weights that would be faster replicated, or recompute its activations: the first stages hold the most micro-batches.
//
// The intra-operator pass solves the whole graph on each mesh, and a stage takes its layers' slice of that solution. So
// partition and meshes are optimal among combinations of such slices; that each stage's own layers are placed optimally
// is not proven.
#pragma once

#include <optional>
#include <vector>

#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct GraphStagesProblem {
  const Graph* graph = nullptr;      ///< graph of a micro-batch, with layers; must outlive the call
  const Cluster* cluster = nullptr;  ///< must outlive the call
  /// Mesh of each stage; empty: free, with `num_devices` devices in all and at least two stages.
  std::vector<StageMesh> meshes = {};
  int num_devices = 1;
  int micro_batches = 1;
  double limit_bytes = 0;  ///< memory limit of a device
  StageSetting setting;
};

struct GraphStages {
  std::vector<StageMesh> meshes;
  Partition layers;
  std::vector<bool> recompute;  ///< whether each stage recomputes
  std::vector<double> bytes;    ///< bytes per device of each stage
  IntraOpPlan operators;        ///< strategies on the mesh of each stage; as a whole kUnproven
  double seconds = 0;           ///< seconds of a step
};

/// Returns the fastest stages; nullopt if none fit, or if there are fewer layers than stages.
std::optional<GraphStages> plan_graph_stages(const GraphStagesProblem& problem);

}  // namespace trireme
