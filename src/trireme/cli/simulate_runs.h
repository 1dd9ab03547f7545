// `trireme simulate --run FOLDER`: what runs measured beside what the simulator predicts for them, and its constants
// corrected by that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/simulate/fit_device.h"

namespace trireme::cli {

/// The job, step time and memory of a finished run. Throws UsageError where the folder is no run, or the run has not
/// come to an end.
MeasuredStep measured_run(const std::string& folder);

struct RunComparison {
  std::vector<MeasuredStep> runs;
  DeviceFit before;                ///< with the cluster as it is
  std::optional<DeviceFit> after;  ///< with its constants fitted to the runs
  std::string path;                ///< of the file that has them
};

/// `write_cluster`: the file for corrected constants; it becomes `cluster` with these. Nothing where it is not set.
RunComparison compare_runs(const std::vector<std::string>& folders, const std::string& cluster,
                           const std::optional<std::string>& write_cluster);
std::string comparison_text(const RunComparison& comparison);
std::string comparison_json(const RunComparison& comparison);

}  // namespace trireme::cli
