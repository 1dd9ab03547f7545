// Builds the programs of a training step. Trainer and simulator both get them here, so a prediction is about the same
// instruction lists that the training executes.
#pragma once

#include <optional>

#include "trireme/program/pipeline.h"

namespace trireme {

/// Everything that the programs of a step depend on.
struct StepShape {
  PipelineShape pipeline = {};        ///< empty schedule: data parallelism, each rank holds the whole model
  int num_micro_batches = 1;          ///< total of the step, over all replicas
  std::vector<int> batch_parts = {};  ///< leaves of each replica, only without a pipeline; empty: equal
  ZeroShape zero = {};
  UpdateShape update = {};
  bool is_pipeline() const { return !pipeline.schedule.ranks.empty(); }
  bool operator==(const StepShape&) const = default;
};

/// The program of one rank. Throws UsageError for sizes that do not divide each other.
Program program_of(const StepShape& shape, int pipeline_rank, int replica);
/// The programs of all ranks, in the order of check_programs(); or of one replica's ranks, if all pipeline ranks have
/// the same number of replicas.
std::vector<Program> programs_of(const StepShape& shape, std::optional<int> replica = {});

}  // namespace trireme
