// The programs of a training step. The trainer runs and the simulator plays what is made here, so that a prediction is
// of the very lists that a training executes.
#pragma once

#include <optional>

#include "trireme/program/pipeline.h"

namespace trireme {

/// What the programs of a layout depend on.
struct StepShape {
  PipelineShape pipeline = {};        ///< where its schedule has no orders: replicas of the whole model
  int num_micro_batches = 1;          ///< of the whole step
  std::vector<int> batch_parts = {};  ///< leaves of each replica, without a pipeline; empty: equal
  ZeroShape zero = {};
  UpdateShape update = {};
  bool is_pipeline() const { return !pipeline.schedule.ranks.empty(); }
  bool operator==(const StepShape&) const = default;
};

/// Of one rank. Throws UsageError for a shape that does not divide.
Program program_of(const StepShape& shape, int pipeline_rank, int replica);
/// Of all ranks, in the order that check_programs() takes; or of the ranks of one replica, where all have as many.
std::vector<Program> programs_of(const StepShape& shape, std::optional<int> replica = {});

}  // namespace trireme
