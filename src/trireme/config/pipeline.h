// The pipeline that a configuration asks for: whether its schedule can run, and where the model is cut.
#pragma once

#include <optional>

#include "trireme/config/check.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

/// Unset for one of the user's own.
std::optional<ScheduleKind> named_schedule(const ParallelConfig& parallel);

/// The backward pass comes in two halves.
bool splits_backward(const Schedule& schedule);

/// As parallel.split says, of a model of so many layers. Throws UsageError for layers that are not there.
Partition split_of(const Config& config, int num_layers);
/// The same for so many stages: empty where it says nothing. Throws UsageError for layers or stages that are not there.
Partition pipeline_split(const Config& config, int num_stages, int num_layers);

/// What can be said without the batch: stages and layers. Throws UsageError.
void check_pipeline(const Config& config);
/// Whether a schedule of the user's own can run, and fits the workers and the batch. Throws UsageError.
void check_own_schedule(const Config& config, const Layout& layout);

}  // namespace trireme
