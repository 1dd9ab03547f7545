#include "trireme/cli/memory_limit.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme::cli {

double memory_limit(const std::string& text, const std::vector<Cluster>& kinds) {
  if (text.empty()) return 0;
  const auto limit = static_cast<double>(parse_bytes(text));
  if (limit <= 0) {
    throw UsageError(fmt::format("--memory-limit {} leaves nothing to plan with", text),
                     "give what a plan may take of a device, 60GB for example; leave it out for all that it has");
  }
  for (const Cluster& kind : kinds) {
    if (limit <= kind.device.memory_bytes) continue;
    throw UsageError(fmt::format("--memory-limit {} is more than the {:.1f} GB of a device of {}", text,
                                 kind.device.memory_bytes / 1e9, kind.name),
                     "give less, leave it out for all that it has, or describe a larger device in a cluster file");
  }
  return limit;
}

}  // namespace trireme::cli
