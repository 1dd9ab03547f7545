// Files that measurements and plans end in: found to be writable before minutes of work, and the cluster file in which
// every measurement keeps its part.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/mesh/cluster_file.h"

namespace trireme::cli {

/// Throws UsageError where `path` is a folder, or the one that it will lie in cannot be written; `flag` named it.
void check_writable(const std::string& flag, const std::filesystem::path& path);

/// Where --write-cluster [FILE] writes: FILE, or where it is empty the file that every command reads. Throws UsageError
/// where there is none, or it cannot be written.
std::filesystem::path cluster_path(const std::string& file);

/// What the file holds; nothing where there is no file. Throws as ClusterFile::load().
ClusterFile load_cluster_file(const std::filesystem::path& path);

/// Adds to the file what was measured on this machine today; all else that it holds stays. Throws as load() and save().
void keep_in_cluster_file(const std::filesystem::path& path, ClusterFile measured);

}  // namespace trireme::cli
