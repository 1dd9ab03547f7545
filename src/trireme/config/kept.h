// Configs that runs and checkpoints keep, read as the version that wrote them meant them.
//
// A kept config names every key of its version. A key that is missing is younger than the run, and its default may be
// something else than what the run did.
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// Sets the keys that `toml` lacks, and that nobody gave, to what runs did before there was the key. Throws as
/// read_toml().
void add_younger_keys(Config& config, std::string_view toml, const std::string& name);

/// As resolve_text(), with these keys.
Config resolve_kept(std::string_view toml, const std::string& name);

}  // namespace trireme
