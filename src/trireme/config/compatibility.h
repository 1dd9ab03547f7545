// What goes with what: the one table of keys whose values contradict each other. check() walks it, the planner asks it
// what its layouts may be, and docs/composition.md lists it. What takes arithmetic (batches, degrees, layers) is in
// check.cpp and next to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// That a key has one of some values.
struct Condition {
  std::string_view key;
  std::string says;  ///< which, for a page: "> 1", "= fp8"
  /// May read the file that parallel.schedule names, and throw as read_schedule() does.
  bool (*holds)(const Config&);
};

/// Both cannot hold together. Read as a sentence: "KEY = … REASON OTHER = …", then the cure.
struct Rule {
  Condition one;  ///< of the key at fault
  std::string_view reason;
  Condition other;
  std::string_view cure;
  bool names_other = true;  ///< or the reason says it all

  bool is_broken_by(const Config& config) const { return one.holds(config) && other.holds(config); }
};

enum class RuleScope {
  kEveryTraining,  ///< what no trainer could run: the planner and the simulator refuse it as well
  kThisTrainer,    ///< what this one cannot
};

/// In the order in which they are told.
const std::vector<Rule>& rules(RuleScope scope);

/// Throws UsageError for the first rule that is broken: of all, or of those with this key at fault.
void check_rules(const Config& config, RuleScope scope, std::string_view key = {});

}  // namespace trireme
