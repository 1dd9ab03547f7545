// What the trainer's rules (config/compatibility.h) say to layouts that a planner chooses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/compatibility.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// Given on the command line or in a file, not by default or a preset.
bool is_given(const Config& config, std::string_view key);

/// Not for threads at the same time.
class TrainerRules {
 public:
  explicit TrainerRules(const Config& config);
  /// Whether the trainer runs the layout with the rest of the configuration. Rules that only given keys break are not
  /// looked at: no other layout would keep them.
  bool allow(const Layout& layout);

 private:
  Config planned_;
  const bool recomputes_as_given_;
  std::vector<const Rule*> rules_;
};

/// Why the trainer does not compress the gradients of the configuration, where compression.method says so; empty where
/// it does, or none is named.
std::string why_not_compressed(const Config& config);
/// The same where compression may be chosen.
std::string why_not_compressible(const Config& config);

}  // namespace trireme
