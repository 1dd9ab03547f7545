// The one table of configuration keys, from which reading, writing, messages and the reference page are made.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// Where a value of some enum with names lives: they all have one byte.
struct Choice {
  uint8_t* value;
  std::span<const std::string_view> names;
};

/// Where a key's value lives; the alternative is its type.
using ValuePointer = std::variant<int64_t*, double*, bool*, std::string*, Choice, ModelKind*>;

struct Allowed {
  double least = 0, most = 0;           ///< numbers; whole ones stay below 2^53, so that a double holds them
  std::vector<std::string_view> names;  ///< the only texts; empty: any, or all names of the enum
  std::string_view unit = {};           ///< "steps", "MiB", …; empty: none
  std::string_view file = {};           ///< "a CSV file": beside the names; empty: none
  /// Other spellings of names: ("bf16", "bfloat16"). Read as the name, never written. Where "true" is one, the key is
  /// a switch with more than two positions, and takes a bool as well.
  std::vector<std::pair<std::string_view, std::string_view>> aliases = {};
};

struct Key {
  std::string_view section, name;
  std::function<ValuePointer(Config&)> pointer;
  Allowed allowed;
  std::string_view meaning;  ///< one line, with what special values do

  std::string full_name() const;       ///< "train.steps"
  std::string_view type_name() const;  ///< "whole number", "number", "switch", "text"
  std::string expected() const;        ///< for messages and the page: "a whole number from 1 to 1,000"
};

/// What a section is for.
struct Section {
  std::string_view name;
  std::string_view meaning;
};

/// Immutable. Threads: all.
class KeyTable {
 public:
  KeyTable();
  /// With the keys of a library's models, each in a section of its own: [model.NAME].
  explicit KeyTable(std::shared_ptr<const ModelLibraryKeys> library);

  /// In the order of the reference page: section by section.
  const std::vector<Key>& keys() const { return keys_; }
  /// In the order of keys().
  const std::vector<Section>& sections() const { return sections_; }
  /// `full_name` reads like "train.steps". `place` is where it was met ("FILE.toml:12:1", "command line"), for the
  /// message of the UsageError that names the nearest key.
  const Key& find(std::string_view full_name, std::string_view place) const;

 private:
  std::vector<Key> keys_;
  std::vector<Section> sections_;
  std::shared_ptr<const ModelLibraryKeys> library_;  ///< has the texts of its keys
  std::deque<std::string> section_names_;
};

/// The table where model.library is this file; empty: none. The same at every call, until the file changes. Throws as
/// read_model_library(). Threads: all.
const KeyTable& key_table(const std::string& library = "");

inline const std::vector<Key>& keys() { return key_table().keys(); }
inline const std::vector<Section>& sections() { return key_table().sections(); }
inline const Key& find_key(std::string_view full_name, std::string_view place) {
  return key_table().find(full_name, place);
}

}  // namespace trireme
