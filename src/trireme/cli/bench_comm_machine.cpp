#include "trireme/cli/bench_comm_machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/text.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/probe.h"

namespace trireme::cli {
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

Machine this_machine() {
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
  const Machine machine = this_machine();
  return {{"host", machine.host},     {"processor", machine.processor},
          {"cores", machine.cores},   {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel}, {"date", machine.date},
          {"trireme", version_text()}};
}

}  // namespace trireme::cli
