// Stages of different shapes: runs both passes for a given batch, recomputation and ZeRO stage.
#pragma once

#include "trireme/plan/graph/inter_op.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme {

struct UnevenProblem {
  const Graph* graph = nullptr;  ///< graph of a micro-batch over all replicas; must outlive the call
  Job job;                       ///< model, batch, dtypes, recomputation, ZeRO stage
  Cluster cluster;
  int64_t num_devices = 1;
};

/// Returns the layout of the best stages that the passes find, a 1F1B pipeline; nullopt if nothing fits.
std::optional<Layout> plan_uneven(const UnevenProblem& problem);

}  // namespace trireme
