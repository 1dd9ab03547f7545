// The machine that a measurement was made on.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::cli {

struct Machine {
  std::string host, processor, kernel;
  std::string date;  ///< "2026-03-01"
  int cores = 0;     ///< that this process may use
  uint64_t memory_bytes = 0;
};

/// Never throws; what cannot be told is empty or 0.
Machine this_machine();

}  // namespace trireme::cli
