// Checks a plan's consistency: its keys with each other, with the model and with the batch.
//
// Stateless functions. Threads: all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme {

/// Throws UsageError for placements of unknown weights, and for placements that the trainer does not execute: it shards
/// weights by the degrees of their stage. Weights that the plan omits get the trainer's placements.
void check_placements(const Plan& plan);

/// Throws UsageError if a key that was set on the command line or in a file differs from the plan's. `file` is the
/// plan's name in messages.
void check_given(const Plan& plan, const Config& config, const std::string& file);

/// Runs check_plan(), check_given(), the checks of planner, simulator and trainer on the plan's keys, and
/// check_placements(). Returns the configuration with these keys. Throws UsageError that names the key.
Config check_plan_keys(const Plan& plan, const Config& config, int64_t world, const std::string& file);

/// Returns why this version of `trireme train` cannot run a configuration that check_plan_keys() returned; empty if it
/// can.
std::string why_not_trained(const Config& planned, int64_t world);

/// Returns the kinds of hosts that the plan names. Throws UsageError if one is neither a known cluster nor a file on
/// this machine.
std::vector<Cluster> clusters_of(const Plan& plan);

/// Simulates a configuration with a plan's keys under Trireme's trainer. The plan's own prediction is for the keys and
/// dtypes it was made with, which may have changed since. `flash` unset: as the cluster's stack does. Throws UsageError
/// for dtypes that the devices do not support.
Simulation simulate_plan(const Config& planned, const std::vector<Cluster>& kinds, std::optional<bool> flash = {});

}  // namespace trireme
