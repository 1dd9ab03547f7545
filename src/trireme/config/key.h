// The one table of configuration keys: reading, writing, messages and the reference page all use it.
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

/// Location of a value of an enum with names. All such enums have one byte.
struct Choice {
  uint8_t* value;
  std::span<const std::string_view> names;
};

/// Location of a key's value; the alternative is its type.
using ValuePointer = std::variant<int64_t*, double*, bool*, std::string*, Choice, ModelKind*>;
/// In the order of ValuePointer's alternatives.
enum class KeyKind : uint8_t { kWhole, kNumber, kSwitch, kText, kChoice, kModelKind };

struct Allowed {
  double least = 0, most = 0;           ///< range of numbers; below 2^53 for whole ones, so doubles are exact
  std::vector<std::string_view> names;  ///< allowed texts; empty: any, or all names of the enum
  std::string_view unit = {};           ///< "steps", "MiB", …; empty: none
  std::string_view file = {};           ///< kind of file allowed in addition to names: "a CSV file"; empty: none
  /// Aliases and their names: ("bf16", "bfloat16"). Accepted as input, never written. If "true" is one, the key is a
  /// switch with more than two positions, and takes a bool as well.
  std::vector<std::pair<std::string_view, std::string_view>> aliases = {};
};

struct Key {
  std::string_view section, name;
  /// Where the value is stored. For a library's key it inserts the default where there is none yet.
  std::function<ValuePointer(Config&)> pointer;
  Allowed allowed;
  std::string_view meaning;  ///< one line, including what special values do
  KeyKind kind = KeyKind::kText;
  const Value* own_default = nullptr;  ///< of a library's key; null for others

  std::string full_name() const;       ///< "train.steps"
  std::string_view type_name() const;  ///< "whole number", "number", "switch", "text"
  std::string expected() const;        ///< text for messages and the page: "a whole number from 1 to 1,000"
};

/// A section of the configuration.
struct Section {
  std::string_view name;
  std::string_view meaning;
};

/// Immutable. Threads: all.
class KeyTable {
 public:
  KeyTable();
  /// Adds the keys of a library's models, one section [model.NAME] per model.
  explicit KeyTable(std::shared_ptr<const ModelLibraryKeys> library);

  /// All keys in the order of the reference page, section by section.
  const std::vector<Key>& keys() const { return keys_; }
  /// Sections in the order of keys().
  const std::vector<Section>& sections() const { return sections_; }
  /// Finds "train.steps". Throws UsageError for an unknown key; it names `place`, where the name was found
  /// ("FILE.toml:12:1", "command line"), and the nearest key.
  const Key& find(std::string_view full_name, std::string_view place) const;

 private:
  std::vector<Key> keys_;
  std::vector<Section> sections_;
  std::shared_ptr<const ModelLibraryKeys> library_;  ///< owns the texts that keys_ refers to; null: none
  std::deque<std::string> section_names_;
};

/// The table for this model.library; empty: only built-in keys. Returns the same table until the file changes. Tables
/// live until the process ends. Throws as read_model_library(). Threads: all.
const KeyTable& key_table(const std::string& library = "");

inline const std::vector<Key>& keys() { return key_table().keys(); }
inline const std::vector<Section>& sections() { return key_table().sections(); }
inline const Key& find_key(std::string_view full_name, std::string_view place) {
  return key_table().find(full_name, place);
}

}  // namespace trireme
