// Recomputation for each stage by itself: the first ones hold most micro-batches, the last ones need not compute again.
#pragma once

#include <optional>

#include "trireme/simulate/simulate.h"

namespace trireme {

/// Pipelines of language models in 1F1B with one stage per rank.
bool can_recompute_by_stage(const Job& job);

/// For such a pipeline: layers of each stage, and which of them are computed again whole, so that a step is fastest
/// within the memory of a device, by sums over blocks. None: nothing fits, or nothing needs to compute again, or
/// everything does.
std::optional<Layout> plan_stage_recompute(const Job& job, const Cluster& cluster);

}  // namespace trireme
