// The one table of pairs of keys whose values contradict each other. check() enforces it, the planner uses it to filter
// layouts, and docs/composition.md lists it. Rules that take arithmetic (batches, degrees, layers) are in check.cpp and
// the files next to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// A condition on the value of a key.
struct Condition {
  std::string_view key;
  std::string says;  ///< the condition in words, for the page: "> 1", "= fp8"
  /// May read the file that parallel.schedule names, and throws as read_schedule() then.
  bool (*holds)(const Config&);
};

/// Two conditions that cannot hold together. Printed as a sentence: "KEY = … REASON OTHER = …", then the cure.
struct Rule {
  Condition one;  ///< condition on the key at fault
  std::string_view reason;
  Condition other;
  std::string_view cure;
  bool names_other = true;  ///< false: the message ends after the reason

  bool is_broken_by(const Config& config) const { return one.holds(config) && other.holds(config); }
};

enum class RuleScope {
  kEveryTraining,  ///< impossible for any trainer: planner and simulator reject it, too
  kThisTrainer,    ///< not supported by this trainer
};

/// The rules of a scope, in the order in which they are checked.
const std::vector<Rule>& rules(RuleScope scope);

/// Throws UsageError for the first broken rule; with `key`, only rules with this key at fault are checked.
void check_rules(const Config& config, RuleScope scope, std::string_view key = {});

}  // namespace trireme
