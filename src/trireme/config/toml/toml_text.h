// From TOML text to assignments of keys, in the order of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/value.h"

namespace trireme {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

struct Assignment {
  std::string key;             ///< "train.steps"; not checked yet, any bytes
  std::optional<Value> value;  ///< nothing: something that no key can be, such as a list
  std::string shown;           ///< the value's kind for a message where there is none: "a list"
  int64_t line = 0, column = 0;
};

/// `name` stands for the text in messages. Any bytes may come: throws UsageError with name, line and column for what is
/// not TOML, is larger than kMaxConfigBytes or is nested deeper than any configuration.
std::vector<Assignment> read_toml(std::string_view text, const std::string& name);

}  // namespace trireme
