// Names the given keys that leave the planner without a layout.
#pragma once

#include <functional>

#include "trireme/config/config.h"

namespace trireme {

/// For a configuration without a layout on `num_devices` devices: throws UsageError that names a minimal set of given
/// keys that rule out every layout, with their values, origins and, if known, the reason. `has_layout` tells whether
/// another configuration has a layout; it is called once per given key.
[[noreturn]] void refuse_keys(const Config& config, int64_t num_devices,
                              const std::function<bool(const Config&)>& has_layout);

}  // namespace trireme
