// Stages of a pipeline that differ in shape: parallel.stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// A stage as so many replicas, each of so many workers that share its operators.
struct StageDegrees {
  int64_t dp = 1, tp = 1;
  int64_t num_workers() const { return dp * tp; }
  bool operator==(const StageDegrees&) const = default;
};

/// Those of parallel.stages, between commas or pluses; none where all stages are alike. Throws UsageError.
std::vector<StageDegrees> stage_degrees(const Config& config);
/// "2x1,1x2"
std::string stages_to_text(const std::vector<StageDegrees>& stages);
/// The least common multiple of their replicas: [Note: Lanes].
int64_t num_lanes(const std::vector<StageDegrees>& stages);
int64_t num_workers(const std::vector<StageDegrees>& stages);

/// What does not go with stages of different shapes. Throws UsageError.
void check_stage_degrees(const Config& config);

}  // namespace trireme
