// Parses train.recompute.
#pragma once

#include <string_view>

#include "trireme/shape/layout.h"

namespace trireme {

/// "none", "full", "selective", or numbers such as "0-3,7". Throws UsageError that says what is expected.
Recompute parse_recompute(std::string_view text);

}  // namespace trireme
