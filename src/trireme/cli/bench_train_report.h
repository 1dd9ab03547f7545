// What `trireme bench train` shows of its measurements: tables and JSON. On a GPU speed by the model's arithmetic, and
// memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trireme/measure/train/trainings.h"

namespace trireme::cli {

/// "3.1 %".
std::string percent(double share);

/// Speed of the main layout, by that of its workers if each were as fast as the base alone. The base is the first
/// layout with fewer workers; nothing where there is none.
struct Efficiency {
  size_t base = 0;  ///< a case
  double value = 0;
  double times = 0;        ///< workers, by the base's
  bool same_share = true;  ///< a worker had as many samples as in the base; else the batch was the same, or neither
};
std::optional<Efficiency> efficiency_of(const measure::TrainRun& run);

std::string bench_train_text(const measure::TrainRun& run, bool colour);
nlohmann::ordered_json bench_train_json(const measure::TrainRun& run);

}  // namespace trireme::cli
