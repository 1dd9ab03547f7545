#include "trireme/config/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

/// 1e-06 reads worse than 0.000001 only where it is long.
std::string format_limit(double value) {
  if (value == static_cast<double>(static_cast<int64_t>(value)) && value < 1e16) {
    return format_count(static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::vector<std::string> full_names() {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.push_back(key.full_name());
  return names;
}

bool is_section(std::string_view name) {
  return std::any_of(sections().begin(), sections().end(),
                     [&](const Section& section) { return section.name == name; });
}

/// The key that was probably meant: the same name in another section ("train.lr"), or a similar one.
std::optional<std::string> meant_key(std::string_view full_name) {
  const std::string_view name = full_name.substr(full_name.rfind('.') + 1);
  if (const auto similar = nearest(full_name, full_names()); similar && edit_distance(full_name, *similar) <= 2) {
    return similar;
  }
  for (const Key& key : keys()) {
    if (key.name == name) return key.full_name();
  }
  if (const auto similar = nearest(full_name, full_names())) return similar;
  std::vector<std::string_view> names;
  for (const Key& key : keys()) names.push_back(key.name);
  const auto similar = nearest(name, names);
  if (!similar) return std::nullopt;
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == *similar; });
  return found->full_name();
}

}  // namespace

std::string Key::full_name() const { return fmt::format("{}.{}", section, name); }

std::string_view Key::type_name() const {
  static Config ignored;  // only the pointer's type is of interest
  static constexpr std::string_view kNames[] = {"whole number", "number", "switch", "text", "text"};
  return kNames[pointer(ignored).index()];
}

std::string Key::expected() const {
  if (!allowed.names.empty()) {
    const std::string names = "one of " + join(allowed.names, ", ");
    return allowed.file.empty() ? names : fmt::format("{}, or {}", names, allowed.file);
  }
  const std::string_view type = type_name();
  if (type == "switch") return "true or false";
  if (type == "text") return "a text";
  return fmt::format("a {} from {} to {}", type, format_limit(allowed.least), format_limit(allowed.most));
}

const Key& find_key(std::string_view full_name, std::string_view place) {
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) {
    return full_name.size() == key.section.size() + 1 + key.name.size() && full_name.starts_with(key.section) &&
           full_name[key.section.size()] == '.' && full_name.ends_with(key.name);
  });
  if (found != keys().end()) return *found;
  // An endless name would take endless time to compare, and nobody could read it.
  const std::string shown(full_name.substr(0, 80));
  const auto meant = meant_key(shown);
  std::string cure = meant ? fmt::format("did you mean {}?", *meant) : "all keys: trireme train --show-config";
  // A section of the user's own invention: the name alone may not tell why this key is the one.
  const size_t dot = shown.find('.');
  if (meant && dot != std::string::npos && shown.substr(dot) == meant->substr(meant->find('.')) &&
      !is_section(shown.substr(0, dot)) && edit_distance(shown, *meant) > 2) {
    cure += fmt::format(" It is: {}", find_key(*meant, place).meaning);
  }
  throw UsageError(fmt::format("unknown key {} ({})", printable(shown), place), cure);
}

}  // namespace trireme
