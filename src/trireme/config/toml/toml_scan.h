// A look at TOML text before it is parsed: what is harmless to us but not to the parser.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Refuses, with name, line and column: more dotted names on a line than any key has (the parser nests a table in a
/// table for each, and its destructors call one another as deep), and a section's head that does not begin with a name
/// (which the parser takes for impossible). Throws UsageError. The rest is the parser's to judge.
void scan_toml(std::string_view text, const std::string& name);

}  // namespace trireme
