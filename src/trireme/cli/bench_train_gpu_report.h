// What `trireme bench train` shows of a GPU: speed by the model's arithmetic, memory, and where the time goes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/cli/bench_train_measure.h"

namespace trireme::cli {

/// Modes and peers side by side, then kernels by class.
std::string bench_train_gpu_tables(const BenchTrainRun& run, bool colour);

/// The fields of a case that only a GPU has.
void add_gpu_fields(nlohmann::ordered_json& json, const BenchTrainRun& run, size_t i);
/// The GPUs, and the peers on them.
void add_gpu_peers(nlohmann::ordered_json& json, const BenchTrainRun& run);

}  // namespace trireme::cli
