// Whether a plan can be what it says: its keys with each other, with the model and with the batch.
//
// Plain functions, no state. Threads: all.
#pragma once

#include <string>

#include "trireme/plan/plan.h"

namespace trireme {

/// check_plan(), then all that planner, simulator and trainer demand of a plan's keys, and that its placements are of
/// weights that there are. Gives the configuration with these keys. Throws UsageError that names the key.
Config check_plan_keys(const Plan& plan, const Config& config, int64_t world);

/// Why `trireme train` of this version cannot run a configuration that check_plan_keys() gave, which may be fine
/// otherwise; empty where it can.
std::string why_not_trained(const Config& planned, int64_t world);

}  // namespace trireme
