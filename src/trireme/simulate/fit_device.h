// Fits the constants of a device and its software stack to trainings measured on it.
//
// Peak, memory and bandwidth bound what a device can do; the fitted constants are the fractions that a training
// reaches. A few short trainings of different sizes, each with its step time and memory, identify them: small models
// the gap between operators, wide models the matmuls, long sequences attention.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/job.h"

namespace trireme {

/// One measured training, on one or several devices.
struct MeasuredStep {
  std::string name;
  Job job;
  double seconds = 0;
  double memory_bytes = 0;  ///< peak of the fullest rank; 0: not measured
};

struct FittedStep {
  double seconds = 0, memory_bytes = 0;  ///< as simulate() predicts with the fitted constants
};

struct DeviceFit {
  Cluster cluster;  ///< with the fitted constants
  std::vector<FittedStep> steps;
  double time_error = 0, worst_time_error = 0;  ///< |predicted / measured - 1|: mean and maximum
  double memory_error = 0, worst_memory_error = 0;
};

/// Fits the constants of `start` to the measured steps, with a weak pull to their starting values. Blocking: seconds.
/// Throws UsageError if there are no steps, or one took no time.
DeviceFit fit_device(const Cluster& start, const std::vector<MeasuredStep>& steps);

/// Returns the errors of a cluster without fitting it.
DeviceFit compare_with(const Cluster& cluster, const std::vector<MeasuredStep>& steps);

}  // namespace trireme
