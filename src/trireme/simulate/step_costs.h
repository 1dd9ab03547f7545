// What the parts of a step cost beside the passes of its stages: messages, sums over replicas, the update.
#pragma once

#include <vector>

#include "trireme/simulate/player.h"
#include "trireme/simulate/step_lowering.h"

namespace trireme {

/// Devices that share a stage: of its layout.
inline int64_t width_of(const Layout& layout) { return layout.tp * layout.cp * layout.dp; }
/// Devices that each rank of the pipeline stands for. `jobs`: the job as each stage has it.
std::vector<int64_t> widths_of_ranks(const std::vector<Job>& jobs, const Schedule& schedule);
/// The first device of each rank of the pipeline.
std::vector<int64_t> first_devices(const std::vector<Job>& jobs, const Schedule& schedule);

/// What the player needs, but for cores that ranks share. `schedule`: only where stages are, not its orders.
PlayCosts step_costs(const std::vector<Job>& jobs, const Cluster& cluster, const std::vector<StageCost>& stages,
                     const Schedule& schedule);

}  // namespace trireme
