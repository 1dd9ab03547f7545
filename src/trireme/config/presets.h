// Named configurations: sizes of well-known models, and the job that runs by default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Preset {
  std::string_view name;
  std::string_view description;  ///< one line
  std::string toml;              ///< may set any key except model.preset
};

/// All presets, in the order for display. The list never changes.
const std::vector<Preset>& list_presets();

/// Throws UsageError that proposes the nearest name.
const Preset& find_preset(std::string_view name);

}  // namespace trireme
