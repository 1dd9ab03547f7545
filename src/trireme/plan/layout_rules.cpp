#include "trireme/plan/layout_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr std::string_view kMethod = "compression.method";
/// Keys that allow() sets from the layout.
constexpr std::string_view kChosen[] = {"parallel.tp",       "parallel.pp",       "parallel.zero",
                                        "parallel.sequence", "parallel.schedule", "parallel.interleave",
                                        "parallel.stages",   "train.recompute",   kMethod};

/// Returns the rules with a key for which `counts` returns true.
template <typename Counts>
std::vector<const Rule*> rules_of(const Counts& counts) {
  std::vector<const Rule*> some;
  for (const RuleScope scope : {RuleScope::kEveryTraining, RuleScope::kThisTrainer}) {
    for (const Rule& rule : rules(scope)) {
      if (counts(rule.one.key) || counts(rule.other.key)) some.push_back(&rule);
    }
  }
  return some;
}

}  // namespace

bool is_given(const Config& config, std::string_view key) {
  const std::string& origin = config.origins.of(key);
  return origin != "default" && origin != "derived" && !origin.starts_with("preset");
}

TrainerRules::TrainerRules(const Config& config)
    : planned_(config), recomputes_as_given_(is_given(config, "train.recompute")) {
  rules_ = rules_of([&](std::string_view key) {
    return std::find(std::begin(kChosen), std::end(kChosen), key) != std::end(kChosen) && !is_given(config, key);
  });
}

bool TrainerRules::allow(const Layout& layout) {
  ParallelConfig& parallel = planned_.parallel;
  parallel.tp = layout.stages.empty() ? layout.tp : 1;
  parallel.pp = layout.pp;
  parallel.zero = layout.zero;
  parallel.sequence = layout.sequence;
  parallel.schedule = layout.schedule_name();
  parallel.interleave = layout.interleave;
  parallel.stages = stages_to_text(layout.stages);
  if (!recomputes_as_given_) planned_.train.recompute = layout.recompute.to_string();
  planned_.compression.method = layout.compression;
  return std::none_of(rules_.begin(), rules_.end(), [&](const Rule* rule) { return rule->is_broken_by(planned_); });
}

std::string why_not_compressed(const Config& config) {
  if (config.compression.method == Method::kNone) return "";
  static const std::vector<const Rule*> all = rules_of([](std::string_view key) { return key == kMethod; });
  const auto broken =
      std::find_if(all.begin(), all.end(), [&](const Rule* rule) { return rule->is_broken_by(config); });
  if (broken == all.end()) return "";
  const Condition& against = (*broken)->one.key == kMethod ? (*broken)->other : (*broken)->one;
  const Value value = get_value(config, find_key(against.key, "the planner"));
  return fmt::format("the trainer does not compress gradients with {} = {}: {}", against.key, format_value(value),
                     (*broken)->cure);
}

std::string why_not_compressible(const Config& config) {
  Config compressed = config;
  if (config.compression.method == Method::kNone) compressed.compression.method = Method::kBFloat16;
  return why_not_compressed(compressed);
}

}  // namespace trireme
