// Which configurations parameter servers cannot train. Inside of config/.
#pragma once

#include "trireme/config/config.h"

namespace trireme {

/// Throws UsageError; nothing where there are no servers.
void check_servers(const Config& config);

}  // namespace trireme
