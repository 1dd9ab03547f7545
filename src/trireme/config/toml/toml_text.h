// Parses TOML text into assignments to keys, in the order of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/value.h"

namespace trireme {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

struct Assignment {
  std::string key;               ///< "train.steps"; not checked, may be any bytes
  std::optional<Value> value;    ///< unset: a kind that no key has, such as a list
  std::string shown;             ///< if unset, the value's kind for messages: "a list"
  int64_t line = 0, column = 0;  ///< position, from 1
};

/// `name` stands for the text in messages. `text` may be any bytes: throws UsageError for text that is not TOML, is
/// larger than kMaxConfigBytes or nested deeper than any configuration, with name and, if known, line and column.
std::vector<Assignment> read_toml(std::string_view text, const std::string& name);

}  // namespace trireme
