// What cannot go together in principle, and why: one table for the checks of a config and for the documents.
//
// Plain values and pure functions; threads: all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/compress/method.h"

namespace trireme {

enum class Synchronisation : uint8_t { kEveryStep, kLocalSgd, kDiLoCo, kAdasum };
std::string_view name_of(Synchronisation synchronisation);

/// The choices of a run that bear on each other.
struct Combination {
  Method method = Method::kNone;
  Synchronisation synchronisation = Synchronisation::kEveryStep;
  int zero = 0;             ///< stage
  bool server = false;      ///< gradients go to parameter servers
  bool adam = true;         ///< the optimizer: Adam or AdamW; otherwise SGD
  bool momentum = false;    ///< SGD with momentum
  bool clips_norm = false;  ///< of the summed gradient
};

struct Refusal {
  std::string_view one, other;  ///< "powersgd", "parameter servers"
  std::string_view reason;
};

/// The first pair that cannot work; nothing where all can.
std::optional<Refusal> find_refusal(const Combination& combination);
/// Throws UsageError that names the pair and the reason.
void check(const Combination& combination);
/// The whole table.
std::vector<Refusal> all_refusals();

}  // namespace trireme
