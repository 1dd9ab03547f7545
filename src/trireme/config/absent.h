// What a configuration may ask for but this version cannot do.
#pragma once

#include "trireme/config/config.h"

namespace trireme {

/// Throws UsageError that names the first such key, its value and what to set instead.
void refuse_absent(const Config& config);

}  // namespace trireme
