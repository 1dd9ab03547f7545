// The page docs/config.md, made from the table of keys.
#pragma once

#include <string>

namespace trireme {

/// Every key by section, with type, default, allowed values and meaning; then the presets. Markdown.
std::string config_reference_markdown();

}  // namespace trireme
