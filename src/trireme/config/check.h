// Checks whether a configuration can run on a number of workers, and computes its layout.
#pragma once

#include <cstdint>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// Number of workers that hold one replica of the model: tp x pp x cp. Experts are spread over replicas, so ep does not
/// count. Throws UsageError for a degree below 1. Meaningless if parallel.stages gives the degrees of each stage.
int64_t workers_of_replica(const Config& config);

/// The layout, with its leaves. Does what check() does, except for the limits of this version: for planner and
/// simulator, which may go beyond them.
Layout check_sizes(const Config& config, int64_t world_size);

/// The layout, with its leaves. Throws UsageError that names keys, values, origins and a cure: for keys that contradict
/// each other, degrees that do not fit the workers, a batch that cannot be split, features that this version lacks.
Layout check(const Config& config, int64_t world_size);

/// The part of check_sizes() about keys of the model. Throws UsageError for keys that contradict each other.
void check_model(const Config& config);

/// Throws UsageError unless tensor parallelism can shard the model over `ranks`; it names the model's key and `key`,
/// which gave the ranks.
void check_tensor_parallel(const ModelConfig& model, int64_t ranks, std::string_view key = "parallel.tp");

/// Fills in parallel.dp and train.leaves from the layout, with origin "derived", if they are open. For --show-config; a
/// run's saved config leaves parallel.dp open, so that it runs on any number of workers.
Config with_layout(Config config, const Layout& layout);

/// With what Trireme's trainer does where a key leaves it to the software ("auto").
Config with_trainer_choices(Config config);

}  // namespace trireme
