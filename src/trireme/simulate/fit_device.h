// Constants of a device and of its software from trainings that were measured there.
//
// A cluster's peak, memory and bandwidth say what a device could do; the fitted constants say how much of it a training
// reaches. A few short trainings of different sizes, each with its step time and memory, tell them apart: small models
// show the time between operators, wide ones the products, long ones attention.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/job.h"

namespace trireme {

/// One training on one device or on several.
struct MeasuredStep {
  std::string name;
  Job job;
  double seconds = 0;
  double memory_bytes = 0;  ///< of the fullest rank; 0: not measured
};

struct FittedStep {
  double seconds = 0, memory_bytes = 0;  ///< as simulate() has them with the fitted constants
};

struct DeviceFit {
  Cluster cluster;  ///< with constants that were fitted
  std::vector<FittedStep> steps;
  double time_error = 0, worst_time_error = 0;  ///< |predicted / measured - 1|: mean and largest
  double memory_error = 0, worst_memory_error = 0;
};

/// The constants of `start` moved so that the steps come out as measured, as little as that needs. Blocking: seconds.
/// Throws UsageError where there are no steps, or one took no time.
DeviceFit fit_device(const Cluster& start, const std::vector<MeasuredStep>& steps);

/// The errors of a cluster as it is.
DeviceFit compare_with(const Cluster& cluster, const std::vector<MeasuredStep>& steps);

}  // namespace trireme
