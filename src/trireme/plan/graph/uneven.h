// Stages of different shapes: the two passes together, for a batch, a recomputation and a ZeRO stage that are given.
#pragma once

#include "trireme/plan/graph/inter_op.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct UnevenProblem {
  const Graph* graph = nullptr;  ///< of a micro-batch of all replicas; outlives the call
  Job job;                       ///< model, batch, types, recomputation, ZeRO
  Cluster cluster;
  int64_t num_devices = 1;
};

/// The layout of the best stages that the passes find; none: nothing fits. Its pipeline is 1f1b.
std::optional<Layout> plan_uneven(const UnevenProblem& problem);

}  // namespace trireme
