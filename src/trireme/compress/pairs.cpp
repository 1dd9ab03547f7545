#include "trireme/compress/pairs.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

struct Rule {
  Refusal refusal;
  bool (*applies)(const Combination&);
};

bool steps_alone(const Combination& c) {
  return c.synchronisation == Synchronisation::kLocalSgd || c.synchronisation == Synchronisation::kDiLoCo;
}
bool is_adasum(const Combination& c) { return c.synchronisation == Synchronisation::kAdasum; }

constexpr std::string_view kAlone = "local SGD or DiLoCo";

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {{"powersgd", "parameter servers",
        "workers need the sum of all first factors before they can compute the second: two sums a step, and a push is "
        "one"},
       [](const Combination& c) { return c.method == Method::kPowerSgd && c.server; }},
      {{"onebit_adam", "an optimizer other than Adam", "what it sends is Adam's momentum"},
       [](const Combination& c) { return c.method == Method::kOneBitAdam && !c.adam; }},
      {{"onebit_adam", "ZeRO",
        "every rank adds its gradient to the whole momentum and needs the whole second moment, of which ZeRO leaves "
        "it a part"},
       [](const Combination& c) { return c.method == Method::kOneBitAdam && c.zero > 0; }},
      {{"onebit_adam", "parameter servers",
        "servers make the update from gradients, but what travels is the momentum that workers keep"},
       [](const Combination& c) { return c.method == Method::kOneBitAdam && c.server; }},
      {{"onebit_adam", "clipping by the norm of the gradient",
        "gradients are not summed after the warm-up, so that their norm is not known"},
       [](const Combination& c) { return c.method == Method::kOneBitAdam && c.clips_norm; }},
      {{"dgc", "Adam", "it sends sums of velocity, which are steps of SGD with momentum and no gradients"},
       [](const Combination& c) { return c.method == Method::kDgc && c.adam; }},
      {{"dgc", "momentum in the optimizer", "it applies momentum itself before the choice: it would be applied twice"},
       [](const Combination& c) { return c.method == Method::kDgc && !c.adam && c.momentum; }},
      {{kAlone, "compression of gradients",
        "no gradients travel: ranks meet to average parameters (DiLoCo can pack what it sends then)"},
       [](const Combination& c) { return steps_alone(c) && c.method != Method::kNone; }},
      {{kAlone, "ZeRO",
        "between meetings every rank has parameters of its own, and cannot keep a part of another rank's state"},
       [](const Combination& c) { return steps_alone(c) && c.zero > 0; }},
      {{kAlone, "parameter servers", "the parameters lie at the servers: a worker has none that could go its own way"},
       [](const Combination& c) { return steps_alone(c) && c.server; }},
      {{"Adasum", "parameter servers",
        "a server adds each push to what it has; Adasum combines pairs, by the angle between whole gradients"},
       [](const Combination& c) { return is_adasum(c) && c.server; }},
      {{"Adasum", "ZeRO from stage 2 on",
        "the angle is between whole tensors, and a reduce-scatter leaves no rank a whole one"},
       [](const Combination& c) { return is_adasum(c) && c.zero >= 2; }},
      {{"Adasum", "compression of gradients",
        "partial results are combined again at every level of the tree: each would have to be compressed anew, "
        "without a rank to keep what that loses"},
       [](const Combination& c) { return is_adasum(c) && c.method != Method::kNone; }},
  };
  return all;
}

}  // namespace

std::string_view name_of(Synchronisation synchronisation) {
  constexpr std::string_view kNames[] = {"every_step", "local_sgd", "diloco", "adasum"};
  return kNames[static_cast<size_t>(synchronisation)];
}

std::optional<Refusal> find_refusal(const Combination& combination) {
  for (const Rule& rule : rules()) {
    if (rule.applies(combination)) return rule.refusal;
  }
  return std::nullopt;
}

void check(const Combination& combination) {
  const std::optional<Refusal> refusal = find_refusal(combination);
  if (!refusal) return;
  throw UsageError(fmt::format("{} and {} cannot go together", refusal->one, refusal->other),
                   std::string(refusal->reason));
}

std::vector<Refusal> all_refusals() {
  std::vector<Refusal> all;
  for (const Rule& rule : rules()) all.push_back(rule.refusal);
  return all;
}

}  // namespace trireme
