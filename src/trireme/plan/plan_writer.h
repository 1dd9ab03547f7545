// From the layout that a search ended with to the plan: keys, stages, and how parameters lie in them.
#pragma once

#include "trireme/plan/candidates.h"
#include "trireme/plan/graph/graph.h"

namespace trireme {

/// `simulation` is of the candidate on the cluster.
Plan plan_of(const Config& config, const Cluster& cluster, const Candidate& candidate, const Simulation& simulation);

/// As a plan of it has them, but for parallel.split.
PlanKeys keys_of(const Candidate& candidate);

/// As Plan::layout_text(), without making the plan.
std::string layout_text_of(const Candidate& candidate);

/// The graph of so many samples, with the costs that the job has on the cluster.
Graph graph_for(const Config& config, const Job& job, const Cluster& cluster, int64_t samples);

}  // namespace trireme
