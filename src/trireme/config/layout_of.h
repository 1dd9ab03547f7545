// Between keys and layouts: the layout that a configuration asks for, and the keys that ask for a layout.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/shape/layout.h"

namespace trireme {

/// As the keys are, whether it can be or not: check() and check_sizes() (config/check.h) give one that can be on so
/// many workers. parallel.dp = -1 counts as 1; a library's model is split where it is built. Reads a schedule of the
/// user's own from its file. Throws UsageError for texts that say nothing, and SystemError.
Layout layout_of(const Config& config);

/// The keys that a planner decides, by name, with the values that ask for this layout.
std::vector<std::pair<const char*, Value>> keys_of(const Layout& layout);

}  // namespace trireme
