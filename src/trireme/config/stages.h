// Stages of a pipeline that differ in shape: parallel.stages.
#pragma once

#include <vector>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// Those of parallel.stages, between commas or pluses; none where all stages are alike. Throws UsageError.
std::vector<StageDegrees> stage_degrees(const Config& config);

/// What does not go with stages of different shapes. Throws UsageError.
void check_stage_degrees(const Config& config);

}  // namespace trireme
