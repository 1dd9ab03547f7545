#include "trireme/measure/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/measure/probe.h"

namespace trireme::measure {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos) return std::string(trim(line.substr(colon + 1)));
  }
  return {};
}

}  // namespace

Machine machine_at_hand() {
  Machine machine;
  utsname names{};
  uname(&names);
  machine.host = names.nodename;
  machine.kernel = std::string(names.sysname) + " " + names.release + " " + names.machine;
  machine.processor = processor_name();
  if (machine.processor.empty()) machine.processor = names.machine;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) machine.cores = CPU_COUNT(&cores);
  machine.memory_bytes = read_field("/proc/meminfo", "MemTotal").value_or(0) * 1024;
  const std::time_t now = std::time(nullptr);
  char date[16] = {};
  tm local{};
  if (localtime_r(&now, &local) != nullptr) std::strftime(date, sizeof date, "%Y-%m-%d", &local);
  machine.date = date;
  return machine;
}

nlohmann::ordered_json machine_json() {
  const Machine machine = machine_at_hand();
  return {{"host", machine.host},     {"processor", machine.processor},
          {"cores", machine.cores},   {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel}, {"date", machine.date}};
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
  if (access(folder.c_str(), W_OK) != 0) {
    throw UsageError(fmt::format("--write-cluster {}: cannot write to the folder {}", path.string(), folder.string()));
  }
  return path;
}

ClusterFile load_cluster_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? ClusterFile::load(path) : ClusterFile();
}

void keep_in_cluster_file(const std::filesystem::path& path, ClusterFile measured) {
  const Machine machine = machine_at_hand();
  measured.host = machine.host;
  measured.cores = machine.cores;
  measured.date = machine.date;
  ClusterFile file = load_cluster_file(path);
  file.merge(measured);
  file.save(path);
}

}  // namespace trireme::measure
