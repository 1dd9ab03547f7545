// Recomputation per stage: the first stages hold the most micro-batches, the last ones need not recompute.
#pragma once

#include <optional>

#include "trireme/simulate/simulate.h"

namespace trireme {

/// Whether plan_stage_recompute() supports the job: pipelines of language models in 1F1B with one stage per rank.
bool can_recompute_by_stage(const Job& job);

/// For such a pipeline, returns the layers of each stage and which of them are fully recomputed, minimizing the step
/// time within device memory, estimated by sums over blocks. nullopt if nothing fits, or if no layer or every layer has
/// to be recomputed.
std::optional<Layout> plan_stage_recompute(const Job& job, const Cluster& cluster);

}  // namespace trireme
