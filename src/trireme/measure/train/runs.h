// `trireme simulate --run FOLDER`: what runs measured next to what the simulator predicts for them, and its
// constants corrected by that.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/simulate/fit_device.h"

namespace trireme::measure {

/// The job of a finished run as it is counted on the cluster, its step time and memory. Throws UsageError where the
/// folder is no run, or the run has not come to an end.
MeasuredStep measured_run(const std::string& folder, const Cluster& cluster);

struct RunComparison {
  std::vector<MeasuredStep> runs;
  DeviceFit before;                ///< with the cluster as it is
  std::optional<DeviceFit> after;  ///< with its constants fitted to the runs
  std::filesystem::path path;      ///< of the file that has them
};

/// `write_cluster`: the file for corrected constants, which becomes `cluster` with these; none: nothing is corrected.
/// Throws UsageError for a folder or cluster that cannot be compared, SystemError.
RunComparison compare_runs(const std::vector<std::string>& folders, const std::string& cluster,
                           const std::optional<std::filesystem::path>& write_cluster);

}  // namespace trireme::measure
