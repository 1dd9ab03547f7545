// What `trireme plan` says of a plan: for people and as JSON.
#pragma once

#include <optional>
#include <string>

#include "trireme/measure/train/trials.h"

namespace trireme::cli {

std::string plan_text(const PlanReport& report);
/// `trials`: where the best plans were tried.
std::string plan_json(const PlanReport& report, const std::optional<measure::PlanTrials>& trials);
/// A row for each plan that was tried.
std::string trials_text(const measure::PlanTrials& trials);

}  // namespace trireme::cli
