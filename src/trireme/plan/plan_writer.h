// From the layout that a search ended with to the plan: its stages, and how parameters are placed in them.
#pragma once

#include "trireme/plan/candidates.h"
#include "trireme/plan/graph/graph.h"

namespace trireme {

/// `simulation` is of the candidate on the cluster.
Plan plan_of(const Config& config, const Cluster& cluster, const Candidate& candidate, const Simulation& simulation);

/// The graph of so many samples, with the costs that the job has on the cluster.
Graph graph_for(const Job& job, const Cluster& cluster, int64_t samples);

}  // namespace trireme
