// What `trireme plan` says of a plan: for people, as JSON, as a picture of its graph.
#pragma once

#include <string>

#include "trireme/plan/search.h"

namespace trireme::cli {

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);
/// The graph of a micro-batch with stages and placements, as SVG or for Graphviz.
std::string plan_picture(const Config& config, const PlanReport& report, bool dot);

}  // namespace trireme::cli
