#include "trireme/config/refusal.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/value.h"

namespace trireme {

std::string with_origin(const Config& config, std::string_view key) {
  const std::string value = format_value(get_value(config, find_key(key, "check")));
  return fmt::format("{} = {} ({})", key, value, config.origins.phrase(key));
}

void contradict(const Config& config, std::string_view key, std::string_view problem, std::string_view other,
                const std::string& cure) {
  throw UsageError(fmt::format("{} {} {}", with_origin(config, key), problem, with_origin(config, other)), cure);
}

}  // namespace trireme
