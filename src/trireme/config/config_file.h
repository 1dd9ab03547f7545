// Reads a configuration file, up to the largest allowed size.
#pragma once

#include <string>

namespace trireme {

/// The file's content, at most kMaxConfigBytes + 1 bytes (which read_toml() then rejects). May block on the disk or on
/// a pipe. Throws SystemError.
std::string read_config_file(const std::string& path);

}  // namespace trireme
