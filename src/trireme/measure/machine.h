// The machine that a measurement was made on, and the cluster file in which every measurement keeps its part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/mesh/cluster_file.h"

namespace trireme::measure {

struct Machine {
  std::string host, processor, kernel;
  std::string date;  ///< "2026-03-01"
  int cores = 0;     ///< that this process may use
  uint64_t memory_bytes = 0;
};

/// Never throws; what cannot be told is empty or 0.
Machine machine_at_hand();
/// What a number needs to be compared with another.
nlohmann::ordered_json machine_json();

/// Where --write-cluster [FILE] writes: FILE, or where it is empty the file that every command reads. Throws UsageError
/// where there is none, or it cannot be written.
std::filesystem::path cluster_path(const std::string& file);
/// Loads the file; an empty one where it does not exist. Throws as ClusterFile::load().
ClusterFile load_cluster_file(const std::filesystem::path& path);
/// Adds to the file what was measured on this machine today; all else that it holds stays. Throws as load() and save().
void keep_in_cluster_file(const std::filesystem::path& path, ClusterFile measured);

}  // namespace trireme::measure
