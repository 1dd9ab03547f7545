#include "trireme/observe/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "trireme/base/text.h"

namespace trireme {
namespace {

/// Of a line such as "VmRSS:     1234 kB".
uint64_t bytes_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return 0;
  line = trim(line.substr(name.size()));
  uint64_t kibibytes = 0;
  const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), kibibytes);
  const std::string_view unit = trim(line.substr(static_cast<size_t>(end - line.data())));
  return failed == std::errc() && unit == "kB" && kibibytes <= UINT64_MAX / 1024 ? kibibytes * 1024 : 0;
}

}  // namespace

ProcessMemory parse_memory_status(std::string_view status) {
  ProcessMemory memory;
  for (const std::string_view line : split(status, '\n')) {
    memory.now_bytes = std::max(memory.now_bytes, bytes_of(line, "VmRSS:"));
    memory.peak_bytes = std::max(memory.peak_bytes, bytes_of(line, "VmHWM:"));
  }
  return memory;
}

ProcessMemory process_memory() {
  std::ifstream file("/proc/self/status");
  const std::string status{std::istreambuf_iterator<char>(file), {}};
  ProcessMemory memory = parse_memory_status(status);
  // Some sandboxes leave VmHWM out.
  rusage usage{};
  if (memory.peak_bytes == 0 && ::getrusage(RUSAGE_SELF, &usage) == 0) {
    memory.peak_bytes = static_cast<uint64_t>(std::max(0L, usage.ru_maxrss)) * 1024;
  }
  memory.peak_bytes = std::max(memory.peak_bytes, memory.now_bytes);
  return memory;
}

}  // namespace trireme
