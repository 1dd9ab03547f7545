// Reads a configuration file, as far as one may be long.
#pragma once

#include <string>

namespace trireme {

/// The file's bytes, at most one more than kMaxConfigBytes (which read_toml() then refuses). May wait for the disk or a
/// pipe. Throws SystemError.
std::string read_config_file(const std::string& path);

}  // namespace trireme
