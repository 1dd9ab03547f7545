// Generates docs/config.md from the table of keys.
#pragma once

#include <string>

namespace trireme {

/// Markdown: every key by section, with type, default, meaning and allowed values; then the presets.
std::string config_reference_markdown();

}  // namespace trireme
