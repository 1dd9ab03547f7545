// What `trireme bench train` shows of its measurements: tables and JSON. On a GPU speed by the model's arithmetic, and
// memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/measure/train/trainings.h"

namespace trireme::cli {

/// "3.1 %".
std::string percent(double fraction);

std::string bench_train_text(const measure::TrainRun& run, bool colour);
nlohmann::ordered_json bench_train_json(const measure::TrainRun& run);

}  // namespace trireme::cli
