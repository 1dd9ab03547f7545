#include "trireme/config/absent.h"

#include <fmt/format.h>

#include <vector>

#include "trireme/base/error.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

struct Absent {
  std::string_view key;
  Value present;  ///< the only value that works
  std::string_view what;
};

// The whole list: a line goes when its capability comes.
const std::vector<Absent>& list() {
  static const std::vector<Absent> all = {
      {"parallel.cp", 1, "context parallelism"},
      {"parallel.ep", 1, "expert parallelism"},
      {"parallel.plan", std::string(), "a plan outside of trireme train"},
      {"elastic.max_restarts", 0, "restarting after a failure"},
  };
  return all;
}

}  // namespace

void refuse_absent(const Config& config) {
  for (const Absent& absent : list()) {
    const Key& key = find_key(absent.key, "the list of what is absent");
    const Value value = get_value(config, key);
    if (value == absent.present) continue;
    throw UsageError(
        fmt::format("{} = {}: {} is not in this version", absent.key, format_value(value), absent.what),
        fmt::format("it came {}; only {} works", config.origins.phrase(absent.key), format_value(absent.present)));
  }
}

}  // namespace trireme
