// Conversion between keys and layouts.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// The layout that the keys ask for, valid or not: check() and check_sizes() (config/check.h) return a valid one for a
/// number of workers. parallel.dp = -1 counts as 1 (as the number of lanes with parallel.stages); the split of a
/// library's model stays empty, as it is made where the model is built. Reads the file of the user's own schedule.
/// Throws UsageError for text that cannot be parsed; SystemError for a file that cannot be read.
Layout layout_of(const Config& config);

/// The keys that a planner decides, with the values that give this layout.
std::vector<std::pair<const char*, Value>> keys_of(const Layout& layout);

}  // namespace trireme
