// `trireme bench train --write-cluster`: what this machine's devices reach in trainings, for the simulator and the
// planner.
//
// Single operators give the peaks and the bandwidth (device_probe.h); short trainings of different sizes give the
// constants of the cost model (simulate/fit_device.h). Both go into the cluster file, next to what
// `trireme bench comm --write-cluster` has measured of its links.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/measure/device_probe.h"
#include "trireme/measure/train/cases.h"
#include "trireme/simulate/fit_device.h"

namespace trireme::measure {

struct Calibration {
  std::filesystem::path path;
  DeviceProbe probe;
  std::vector<MeasuredStep> steps = {};
  DeviceFit fit = {};
};

/// Measures and writes. Blocks for minutes, shows progress on stderr. Throws as measure_trainings(), and SystemError
/// where the file cannot be written.
Calibration calibrate(const TrainOptions& options, const std::filesystem::path& path);

/// One training of a calibration: a single case of measure_trainings().
struct CalibrationTraining {
  std::string name;
  TrainOptions options;
  int dp = 1;  ///< replicas, which the config leaves open
};
/// The trainings of a calibration where each of `num_workers` workers has a core, or the one worker a GPU. What the
/// user asked for of the training counts more.
std::vector<CalibrationTraining> calibration_trainings(const TrainOptions& asked, bool on_gpu, int num_workers);

/// The quietest repeat, since others may have used the machine in between; and the most memory, since allocators have
/// luck.
MeasuredStep quietest(const std::vector<MeasuredStep>& repeats);

}  // namespace trireme::measure
