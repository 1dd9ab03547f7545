// What single operators reach on a device of this machine: the start of every calibration.
//
// Matrix products of several shapes give the peaks, a copy gives the bandwidth, an operator on next to nothing the time
// that starting one takes (trireme-tensor probe-device). Everything else of the cost model is the preset's.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/cluster.h"

namespace trireme::measure {

struct ProbedProduct {
  std::string type;
  int64_t m = 0, n = 0, k = 0;
  double tflops = 0;
};

struct DeviceProbe {
  bool on_gpu = false;
  std::vector<ProbedProduct> products;
  double launch_us = 0;
  Cluster cluster;  ///< this machine, with links of the cluster file where it has some
};

/// Blocks for seconds. Throws Error where the device cannot be measured.
DeviceProbe probe_device(const std::filesystem::path& cluster_file, bool on_gpu);
/// Writes products and a device, which may have been fitted since, into the file; its links stay. Throws SystemError.
void keep_device(const std::filesystem::path& cluster_file, const DeviceProbe& probe, const Cluster& cluster);

/// The keys of a cluster file that are about its devices.
nlohmann::ordered_json device_json(const DeviceProbe& probe, const Cluster& cluster);

/// What `trireme-tensor probe-device` printed, with the links of the file, or else those of a preset. Throws
/// nlohmann's errors for output without the fields.
DeviceProbe parse_probe(const nlohmann::json& probed, const ClusterFile& file, bool on_gpu);

}  // namespace trireme::measure
