// Resolves defaults, a preset, a file and the command line into one Config; each layer overrides the ones before.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

struct ConfigSources {
  std::string file = {};  ///< a TOML file; empty: none
  /// "--section.key=value", or two words "--section.key" "value"; "--section.key" alone sets a switch to true.
  /// "--model NAME" is short for "--model.preset NAME"; a NAME that ends in .toml is taken as `file`.
  std::vector<std::string> arguments = {};
  /// Preset to use if there is no file, no model library, and no argument names a preset; empty: none.
  std::string default_preset = "default";
};

/// Fills in values that are derived from others if not set: model.kv_heads, model.ffn, model.tied, observe.name,
/// parallel.pp with parallel.stages; and drops a preset's train.target_loss if the task differs from the preset's. May
/// block: see read_config_file(), read_model_library(). Throws UsageError that names key, value, origin and what is
/// allowed; SystemError if the file cannot be read.
Config resolve(const ConfigSources& sources);

/// resolve() with the text of a file; `name` stands for it in origins and messages. No default preset.
Config resolve_text(std::string_view toml, const std::string& name, const std::vector<std::string>& arguments = {});

/// All keys and values, with origins as comments: what --show-config prints, and a run saves. Read back, it gives an
/// equal Config.
std::string to_toml(const Config& config);

}  // namespace trireme
