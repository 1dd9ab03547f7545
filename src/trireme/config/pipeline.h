// The pipeline that a configuration asks for: the order of its work, and where the model is cut.
#pragma once

#include "trireme/config/check.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

/// Layers that a model can be cut between: embedding or stem, blocks, output.
int num_layers(const ModelConfig& model);

/// Of one replica. A file is read at each call; what is wrong with it throws UsageError, or SystemError.
Schedule pipeline_schedule(const Config& config, const BatchPlan& plan);
/// The backward pass comes in two halves.
bool splits_backward(const Schedule& schedule);

/// As parallel.split says: empty where it says nothing. Throws UsageError for layers or stages that are not there.
Partition pipeline_split(const Config& config, int num_stages);

/// What can be said without the batch: stages and layers, keys that do not go together. Throws UsageError.
void check_pipeline(const Config& config);
/// Whether a schedule of the user's own can run, and fits the workers and the batch. Throws UsageError.
void check_own_schedule(const Config& config, const BatchPlan& plan);

}  // namespace trireme
