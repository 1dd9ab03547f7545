// Measured steps beside predicted ones: the table that calibrations and `trireme simulate --run` share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/simulate/fit_device.h"

namespace trireme::cli {

/// A row for each step. `heading` is above the names.
std::string steps_text(const std::string& heading, const std::vector<MeasuredStep>& steps, const DeviceFit& fit);
/// "step time off by 3.1 % on average, 6.2 % at most; memory 1.0 % and 2.2 %"
std::string errors_text(const DeviceFit& fit);
/// "steps", "time_error", "worst_time_error", "memory_error", "worst_memory_error".
nlohmann::ordered_json steps_json(const std::vector<MeasuredStep>& steps, const DeviceFit& fit);

}  // namespace trireme::cli
