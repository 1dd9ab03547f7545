// What `trireme plan` says of a plan: for people, as JSON, as a picture of its graph.
#pragma once

#include <optional>
#include <string>

#include "trireme/cli/plan_trials.h"

namespace trireme::cli {

std::string plan_text(const PlanReport& report);
/// `trials`: where the best plans were tried.
std::string plan_json(const PlanReport& report, const std::optional<PlanTrials>& trials);
/// The graph of a micro-batch with stages and placements, as SVG or for Graphviz.
std::string plan_picture(const Config& config, const PlanReport& report, bool dot);

}  // namespace trireme::cli
