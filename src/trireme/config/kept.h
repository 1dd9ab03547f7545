// Reads configs that runs and checkpoints have saved, with the meaning that they had in the version that wrote them.
//
// A saved config names every key of its version. So a missing key is newer than the run, and its default may differ
// from what the run did.
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// Sets keys that `toml` lacks, and that were not given otherwise, to what runs did before the key existed. Throws as
/// read_toml().
void add_younger_keys(Config& config, std::string_view toml, const std::string& name);

/// resolve_text(), then add_younger_keys().
Config resolve_kept(std::string_view toml, const std::string& name);

}  // namespace trireme
