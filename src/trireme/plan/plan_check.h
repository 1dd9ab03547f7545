// Whether a plan can be what it says: its keys with each other, with the model and with the batch.
//
// Plain functions, no state. Threads: all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme {

/// Throws UsageError for placements of weights that there are not, and for those that the trainer would not execute: it
/// cuts weights as the degrees of a stage say. Weights that are not mentioned lie as they do.
void check_placements(const Plan& plan);

/// Throws UsageError where a key that somebody gave, on the command line or in a file, is not what the plan says.
/// `file` stands for the plan.
void check_given(const Plan& plan, const Config& config, const std::string& file);

/// check_plan() and check_given(), then all that planner, simulator and trainer demand of a plan's keys, and
/// check_placements(). Gives the configuration with these keys. Throws UsageError that names the key.
Config check_plan_keys(const Plan& plan, const Config& config, int64_t world, const std::string& file);

/// Why `trireme train` of this version cannot run a configuration that check_plan_keys() gave, which may be fine
/// otherwise; empty where it can.
std::string why_not_trained(const Config& planned, int64_t world);

/// The kinds of hosts that the plan names. Throws UsageError where one is neither known nor a file on this machine.
std::vector<Cluster> clusters_of(const Plan& plan);

/// What the simulator says of a configuration that has a plan's keys, trained by the trainer. The plan's own prediction
/// is of the keys and types that it was made for, and both may have been changed since. `flash` unset: as the cluster's
/// software does. Throws UsageError for types that the devices do not have.
Simulation simulate_plan(const Config& planned, const std::vector<Cluster>& kinds, std::optional<bool> flash = {});

}  // namespace trireme
