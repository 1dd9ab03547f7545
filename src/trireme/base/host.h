/// The name of the machine that this process runs on.
#pragma once

#include <string>

namespace trireme {

/// As gethostname() has it; "unknown" where the system has no name.
std::string host_name();

}  // namespace trireme
