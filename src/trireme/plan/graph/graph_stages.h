// Stages for a graph that no configuration describes: layers, and a mesh with placements for each.
//
// The inter-operator pass over what the intra-operator pass says of each mesh. Where memory is short a stage may cut
// weights that would rather be whole, or compute its activations again: the first ones hold most micro-batches.
//
// The intra-operator pass solves the whole graph on each mesh, and a stage takes its layers' slice of that solution. So
// the cut into stages, and their meshes, are proven to be the fastest of all that can be put together from such slices;
// that no stage could lay out its own layers in a faster way is not.
#pragma once

#include <optional>
#include <vector>

#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct GraphStagesProblem {
  const Graph* graph = nullptr;        ///< of a micro-batch, with layers; outlives the call
  const Cluster* cluster = nullptr;    ///< likewise
  std::vector<StageMesh> meshes = {};  ///< of each stage; empty: any, of `num_devices` together, two stages at least
  int num_devices = 1;
  int micro_batches = 1;
  double limit_bytes = 0;  ///< of a device
  StageSetting setting;
};

struct GraphStages {
  std::vector<StageMesh> meshes;
  Partition layers;
  std::vector<bool> recompute;  ///< of each stage
  std::vector<double> bytes;    ///< of a device of each stage
  IntraOpPlan operators;        ///< each on the mesh of its stage; together kUnproven
  double seconds = 0;           ///< of a step
};

/// None: nothing keeps the limit, or there are fewer layers than stages.
std::optional<GraphStages> plan_graph_stages(const GraphStagesProblem& problem);

}  // namespace trireme
