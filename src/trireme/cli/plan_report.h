// What `trireme plan` says of a plan: for people and as JSON.
#pragma once

#include <optional>
#include <string>

#include "trireme/cli/plan_trials.h"

namespace trireme::cli {

std::string plan_text(const PlanReport& report);
/// `trials`: where the best plans were tried.
std::string plan_json(const PlanReport& report, const std::optional<PlanTrials>& trials);

}  // namespace trireme::cli
