// The planner's best plans, trained for some steps on this machine: the model chooses whom to try, the clock who wins.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/plan/search.h"

namespace trireme::measure {

constexpr size_t kUsualTrials = 3;

struct PlanTrial {
  std::string layout;
  double predicted_seconds = 0, measured_seconds = 0;  ///< of a step
};

struct PlanTrials {
  std::vector<PlanTrial> trials;  ///< as the plans were given
  size_t best = 0;                ///< the fastest
  double seconds = 0;             ///< that all of them took
};

/// Plans are for the config and for workers of this machine. They take turns, twice, and those close to the fastest
/// three times more. Blocks and shows progress on stderr. Throws UsageError for a plan
/// that the trainer cannot run, Error when a training fails.
PlanTrials try_plans(const Config& config, std::span<const Plan> plans);

}  // namespace trireme::measure
