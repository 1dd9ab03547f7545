// Costs of a step other than forward and backward passes: messages between stages, exchanges between replicas or with
// parameter servers, the update.
#pragma once

#include <vector>

#include "trireme/simulate/player.h"
#include "trireme/simulate/step_lowering.h"

namespace trireme {

/// Number of devices that hold one stage, from the stage's layout.
inline int64_t width_of(const Layout& layout) { return layout.tp * layout.cp * layout.dp; }
/// Number of devices that each pipeline rank stands for. `jobs`: the job with each stage's layout.
std::vector<int64_t> widths_of_ranks(const std::vector<Job>& jobs, const Schedule& schedule);
/// Number of the first device of each pipeline rank.
std::vector<int64_t> first_devices(const std::vector<Job>& jobs, const Schedule& schedule);

/// Returns the player's costs, except for cores that ranks share. Uses the placement of stages in `schedule`, not its
/// order.
PlayCosts step_costs(const std::vector<Job>& jobs, const Cluster& cluster, const std::vector<StageCost>& stages,
                     const Schedule& schedule);

}  // namespace trireme
