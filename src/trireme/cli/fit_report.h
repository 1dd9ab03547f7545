// What fits of the simulator's constants show: probes of a device, calibrations, and runs compared with predictions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/measure/device_probe.h"
#include "trireme/measure/train/calibrate.h"
#include "trireme/measure/train/runs.h"

namespace trireme::cli {

std::string probe_text(const measure::DeviceProbe& probe, bool colour);

std::string calibration_text(const measure::Calibration& calibration, bool colour);
nlohmann::ordered_json calibration_json(const measure::Calibration& calibration);

std::string comparison_text(const measure::RunComparison& comparison);
std::string comparison_json(const measure::RunComparison& comparison);

}  // namespace trireme::cli
