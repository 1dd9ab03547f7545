// How much memory this process uses, now and at most so far.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

struct ProcessMemory {
  uint64_t now_bytes = 0;   ///< resident
  uint64_t peak_bytes = 0;  ///< the most that was resident at once
};

/// Threads: all. Never fails: 0 where the system does not tell.
ProcessMemory process_memory();
/// VmRSS and VmHWM of a text like /proc/self/status; 0 for what is not there.
ProcessMemory parse_memory_status(std::string_view status);

}  // namespace trireme
