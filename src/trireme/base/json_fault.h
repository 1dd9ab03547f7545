// Where a text stops being JSON, in a sentence for whoever wrote it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// "line 3, column 5: a ',' or a '}' is expected, and here is '"'". Lines and columns (bytes) count from 1. Empty for a
/// text that is JSON.
std::string json_fault(std::string_view text);

}  // namespace trireme
