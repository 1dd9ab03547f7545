// `trireme plan --check`: reads a plan, and says whether it can be what it says, for this model and these devices, and
// fits into them.
#pragma once

#include <optional>
#include <string>

#include "trireme/config/config.h"

namespace trireme::cli {

struct PlanCheckFlags {
  std::string file;
  std::optional<std::string> cluster;  ///< where one was named
  std::string memory_limit;            ///< of a device; empty: all that it has
  std::optional<bool> flash;           ///< fused attention; unset: as the cluster's software does
  int64_t gpus = 0;                    ///< 0: as the plan has it
  bool json = false;
};

/// Prints the verdict. Throws UsageError that says what is wrong, with `json` after an object that says the same.
void check_plan_file(const PlanCheckFlags& flags, const Config& config);

}  // namespace trireme::cli
