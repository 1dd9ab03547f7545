// The pipeline of a configuration: whether its schedule can run, and how the model is split into stages.
#pragma once

#include <optional>

#include "trireme/config/check.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

/// The built-in schedule; nullopt if the user gives a file.
std::optional<ScheduleKind> named_schedule(const ParallelConfig& parallel);

/// Whether backward passes are split into two halves (I and W).
bool splits_backward(const Schedule& schedule);

/// The partition of parallel.split for a model of `num_layers` layers; empty if it is not set. Throws UsageError for
/// layers that do not exist.
Partition split_of(const Config& config, int num_layers);
/// split_of(), checked for `num_stages` stages. Throws UsageError for layers or stages that do not exist.
Partition pipeline_split(const Config& config, int num_stages, int num_layers);

/// Checks stages against layers, which does not take the batch; only for a built-in schedule. Throws UsageError.
void check_pipeline(const Config& config);
/// Checks that the user's own schedule, if any, can run and fits the workers and the batch. Throws UsageError.
void check_own_schedule(const Config& config, const Layout& layout);

}  // namespace trireme
