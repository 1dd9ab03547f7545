// The sentences in which configurations are refused: values with where they came from. Inside of config/.
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// "model.heads = 5 (from FILE.toml:12)".
std::string with_origin(const Config& config, std::string_view key);

/// Throws UsageError: "KEY = … (…) PROBLEM OTHER = … (…)", then the cure.
[[noreturn]] void contradict(const Config& config, std::string_view key, std::string_view problem,
                             std::string_view other, const std::string& cure);

}  // namespace trireme
