// Applies the trainer's rules (config/compatibility.h) to layouts that a planner chooses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/compatibility.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// Whether a key was set on the command line or in a file, not by default or a preset.
bool is_given(const Config& config, std::string_view key);

/// Checks layouts against the rules. Threads: one at a time.
class TrainerRules {
 public:
  explicit TrainerRules(const Config& config);
  /// Whether the trainer accepts the layout with the rest of the configuration. Rules that given keys alone break are
  /// skipped: no layout could satisfy them.
  bool allow(const Layout& layout);

 private:
  Config planned_;
  const bool recomputes_as_given_;
  std::vector<const Rule*> rules_;
};

/// Returns why the trainer refuses the configuration's compression.method; empty if it accepts it, or if it is none.
std::string why_not_compressed(const Config& config);
/// The same for any method, for planners that may choose one.
std::string why_not_compressible(const Config& config);

}  // namespace trireme
