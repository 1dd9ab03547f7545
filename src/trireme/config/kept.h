// Configs that runs and checkpoints keep, read as the version that wrote them meant them.
//
// A kept config names every key of its version. A key that is missing is younger than the run, and its default may be
// something else than what the run did.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// "--data.split=end", …: for keys that `toml` lacks, what runs did before there was the key. Throws as read_toml().
std::vector<std::string> words_of_older_version(std::string_view toml, const std::string& name);

/// As resolve_text(), with these words.
Config resolve_kept(std::string_view toml, const std::string& name);

}  // namespace trireme
