// What `trireme bench train` shows of a GPU: speed by the model's arithmetic, and memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/cli/bench_train_measure.h"

namespace trireme::cli {

/// Modes side by side, then their losses.
std::string bench_train_gpu_tables(const BenchTrainRun& run);

/// The fields of a case that only a GPU has.
void add_gpu_fields(nlohmann::ordered_json& json, const BenchTrainRun& run, size_t i);
/// The GPUs, to the machine.
void add_gpus(nlohmann::ordered_json& json, const BenchTrainRun& run);

}  // namespace trireme::cli
