// The machine that a measurement was made on.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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
/// The same as JSON, with the version of Trireme: what a number needs to be compared with another.
nlohmann::ordered_json machine_json();

}  // namespace trireme::cli
