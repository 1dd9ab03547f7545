// Scans TOML text before it is parsed, for input that the parser cannot handle.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Throws UsageError with name, line and column for too many dots on a line (the parser creates a nested table for
/// each, and destroying them recurses as deep), and for a section header that does not begin with a name (which the
/// parser assumes impossible). All other errors are left to the parser.
void scan_toml(std::string_view text, const std::string& name);

}  // namespace trireme
