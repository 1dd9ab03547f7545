// Whether a configuration can be run on a number of workers, and the layout that it has there.
#pragma once

#include <cstdint>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// That hold one replica of the model: tp x pp x cp. Experts are spread over replicas, so ep adds none. Throws
/// UsageError for a degree that is not a number of workers. Not where parallel.stages says the degrees of each stage.
int64_t workers_of_replica(const Config& config);

/// The layout, with its leaves. All that check() does but whether this version can do it: for planner and simulator.
Layout check_sizes(const Config& config, int64_t world_size);

/// Keys that contradict each other, degrees that do not fit the workers, a batch that cannot be split, what this
/// version cannot do: each throws UsageError that names keys, values, origins and a cure.
Layout check(const Config& config, int64_t world_size);

/// Keys of the model that contradict each other: part of check_sizes(). Throws UsageError.
void check_model(const Config& config);

/// Whether a model can be cut over `ranks` by tensor parallelism. Throws UsageError that names the model's key, and the
/// one that the ranks come from.
void check_tensor_parallel(const ModelConfig& model, int64_t ranks, std::string_view key = "parallel.tp");

/// With parallel.dp and train.leaves as the layout has them, "derived" where nobody had set them. For --show-config; a
/// file that a run keeps leaves parallel.dp open, so that it runs on any number of workers.
Config with_layout(Config config, const Layout& layout);

/// With what Trireme's trainer does where a key leaves it to the software ("auto").
Config with_trainer_choices(Config config);

}  // namespace trireme
