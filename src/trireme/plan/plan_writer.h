// Converts the layout that a search found to a plan: its stages, and the placements of their parameters.
#pragma once

#include "trireme/plan/candidates.h"
#include "trireme/plan/graph/graph.h"

namespace trireme {

/// `simulation`: of the candidate, on the cluster.
Plan plan_of(const Config& config, const Cluster& cluster, const Candidate& candidate, const Simulation& simulation);

/// Returns the graph of `samples` samples, with the job's costs on the cluster.
Graph graph_for(const Job& job, const Cluster& cluster, int64_t samples);

}  // namespace trireme
