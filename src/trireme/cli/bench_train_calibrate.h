// `trireme bench train --write-cluster`: what this machine's devices reach in trainings, for the simulator and the
// planner.
//
// Single operators give the peaks and the bandwidth (device_probe.h); short trainings of different sizes give the
// constants of the cost model (simulate/fit_device.h). Both go into the cluster file, beside what
// `trireme bench comm --write-cluster` has measured of its links.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/cli/bench_train_plan.h"
#include "trireme/cli/device_probe.h"
#include "trireme/simulate/fit_device.h"

namespace trireme::cli {

struct Calibration {
  std::filesystem::path path;
  DeviceProbe probe;
  std::vector<MeasuredStep> steps = {};
  DeviceFit fit = {};
};

/// Measures and writes. Blocks for minutes, shows progress on stderr. Throws as measure_bench_train(), and SystemError
/// where the file cannot be written.
Calibration calibrate(const BenchTrainFlags& flags, const std::filesystem::path& path);

std::string calibration_text(const Calibration& calibration, bool colour);
nlohmann::ordered_json calibration_json(const Calibration& calibration);

}  // namespace trireme::cli
