#include "trireme/cli/written_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/cli/bench_comm_machine.h"

namespace trireme::cli {

namespace {

void check_folder(const std::string& flag, const std::filesystem::path& path, const std::filesystem::path& folder) {
  if (access(folder.c_str(), W_OK) == 0) return;
  throw UsageError(fmt::format("{} {}: cannot write to the folder {}", flag, path.string(), folder.string()));
}

}  // namespace

void check_writable(const std::string& flag, const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw UsageError(fmt::format("{} {}: that is a folder", flag, path.string()), "name a file in it");
  }
  check_folder(flag, path, std::filesystem::absolute(path).parent_path());
}

std::filesystem::path cluster_path(const std::string& file) {
  const std::filesystem::path path = file.empty() ? ClusterFile::default_path() : std::filesystem::path(file);
  if (path.empty()) {
    throw UsageError("--write-cluster: there is no home folder for the cluster file", "give it a FILE");
  }
  // Folders that are missing will be made.
  std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code ignored;
  while (folder.has_relative_path() && !std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
  check_folder("--write-cluster", path, folder);
  return path;
}

ClusterFile load_cluster_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? ClusterFile::load(path) : ClusterFile();
}

void keep_in_cluster_file(const std::filesystem::path& path, ClusterFile measured) {
  const Machine machine = this_machine();
  measured.host = machine.host;
  measured.cores = machine.cores;
  measured.date = machine.date;
  ClusterFile file = load_cluster_file(path);
  file.merge(measured);
  file.save(path);
}

}  // namespace trireme::cli
