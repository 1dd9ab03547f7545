// From defaults, a preset, a file and the command line to one Config, each layer over the one before.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

struct ConfigSources {
  std::string file = {};  ///< a TOML file; empty: none
  /// "--section.key=value", or two words "--section.key" "value"; "--section.key" alone is true for a switch.
  /// "--model NAME" is short for "--model.preset NAME", and with a name that ends in .toml for `file`.
  std::vector<std::string> arguments = {};
  /// The preset where neither the file nor an argument names one, and there is no file. Empty: none.
  std::string default_preset = "default";
};

/// Values that follow from others (model.kv_heads, model.ffn, model.tied where nobody set them) are filled in.
/// Throws UsageError that names key, value, origin and what would be right; SystemError if the file cannot be read.
Config resolve(const ConfigSources& sources);

/// As resolve() with a file of this text; `name` stands for it in origins and messages.
Config resolve_text(std::string_view toml, const std::string& name, const std::vector<std::string>& arguments = {});

/// All keys and values with their origins as comments: what --show-config prints, and the file that a run keeps.
/// Read back it gives an equal Config.
std::string to_toml(const Config& config);

}  // namespace trireme
