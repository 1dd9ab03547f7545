// Pipeline stages of different shapes (dp x tp): parallel.stages.
#pragma once

#include <vector>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// Parses parallel.stages, separated by commas or pluses; empty if all stages are alike. Throws UsageError.
std::vector<StageDegrees> stage_degrees(const Config& config);

/// Throws UsageError for keys that do not go with stages of different shapes.
void check_stage_degrees(const Config& config);

}  // namespace trireme
