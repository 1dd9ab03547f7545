// Which of the given keys leave the planner without a layout.
#pragma once

#include <functional>

#include "trireme/config/config.h"

namespace trireme {

/// For a configuration that no layout of so many devices can be found for: throws UsageError that names the fewest
/// given keys that are enough for that, with their values, where they came from, and the reason where it is known.
/// `has_layout` says whether another configuration has one; it is asked once for each given key.
[[noreturn]] void refuse_keys(const Config& config, int64_t num_devices,
                              const std::function<bool(const Config&)>& has_layout);

}  // namespace trireme
