// Configurations with a name: shapes of known models and the job that runs when nothing is asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Preset {
  std::string_view name;
  std::string_view description;  ///< one line
  std::string toml;              ///< may set any key but model.preset
};

/// In the order in which people read them. The same at every call.
const std::vector<Preset>& list_presets();

/// Throws UsageError that names the nearest one.
const Preset& find_preset(std::string_view name);

}  // namespace trireme
