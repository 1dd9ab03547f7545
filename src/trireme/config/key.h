// The one table of configuration keys, from which reading, writing, messages and the reference page are made.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// Where a key's value lives; the alternative is its type.
using ValuePointer = std::variant<int64_t*, double*, bool*, std::string*, ModelKind*>;

struct Allowed {
  double least = 0, most = 0;           ///< numbers; whole ones stay below 2^53, so that a double holds them
  std::vector<std::string_view> names;  ///< the only texts; empty: any
  std::string_view unit = {};           ///< "steps", "MiB", …; empty: none
  std::string_view file = {};           ///< "a CSV file": beside the names; empty: none
  /// Other spellings of names: ("bf16", "bfloat16"). Read as the name, never written.
  std::vector<std::pair<std::string_view, std::string_view>> aliases = {};
};

struct Key {
  std::string_view section, name;
  ValuePointer (*pointer)(Config&);
  Allowed allowed;
  std::string_view meaning;  ///< one line, with what special values do

  std::string full_name() const;       ///< "train.steps"
  std::string_view type_name() const;  ///< "whole number", "number", "switch", "text"
  std::string expected() const;        ///< for messages and the page: "a whole number from 1 to 1,000"
};

/// In the order of the reference page: section by section. The same at every call. Threads: all.
const std::vector<Key>& keys();

/// What a section is for, in the order of keys().
struct Section {
  std::string_view name;
  std::string_view meaning;
};
const std::vector<Section>& sections();

/// `full_name` reads like "train.steps". `place` is where it was met ("FILE.toml:12:1", "command line"), for the
/// message of the UsageError that names the nearest key.
const Key& find_key(std::string_view full_name, std::string_view place);

}  // namespace trireme
