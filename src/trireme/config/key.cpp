#include "trireme/config/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

/// A limit as people write it: whole numbers with separators, others in the shortest form.
std::string format_limit(double value) {
  if (value == static_cast<double>(static_cast<int64_t>(value)) && value < 1e16) {
    return format_count(static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::vector<std::string> full_names(const KeyTable& table) {
  std::vector<std::string> names;
  for (const Key& key : table.keys()) names.push_back(key.full_name());
  return names;
}

bool is_section(const KeyTable& table, std::string_view name) {
  return std::any_of(table.sections().begin(), table.sections().end(),
                     [&](const Section& section) { return section.name == name; });
}

/// The key that was probably meant: the same name in another section ("train.lr"), or a similar one.
std::optional<std::string> meant_key(const KeyTable& table, std::string_view full_name) {
  const std::string_view name = full_name.substr(full_name.rfind('.') + 1);
  const std::vector<Key>& keys = table.keys();
  if (const auto similar = nearest(full_name, full_names(table)); similar && edit_distance(full_name, *similar) <= 2) {
    return similar;
  }
  for (const Key& key : keys) {
    if (key.name == name) return key.full_name();
  }
  if (const auto similar = nearest(full_name, full_names(table))) return similar;
  std::vector<std::string_view> names;
  for (const Key& key : keys) names.push_back(key.name);
  const auto similar = nearest(name, names);
  if (!similar) return std::nullopt;
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == *similar; });
  return found->full_name();
}

}  // namespace

std::string Key::full_name() const { return fmt::format("{}.{}", section, name); }

std::string_view Key::type_name() const {
  static constexpr std::string_view kNames[] = {"whole number", "number", "switch", "text", "text", "text"};
  if (std::ranges::any_of(allowed.aliases, [](const auto& alias) { return alias.first == "true"; })) return "switch";
  return kNames[static_cast<size_t>(kind)];
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

KeyTable::KeyTable(std::shared_ptr<const ModelLibraryKeys> library) : KeyTable() {
  library_ = std::move(library);
  Key& kind = *std::find_if(keys_.begin(), keys_.end(), [](const Key& key) { return key.full_name() == "model.kind"; });
  std::vector<Key> own;
  std::vector<Section> own_sections;
  for (const LibraryModelKeys& model : library_->models) {
    kind.allowed.names.push_back(model.name);
    const std::string_view section = section_names_.emplace_back("model." + model.name);
    own_sections.push_back({section, model.meaning});
    for (const LibraryKey& key : model.keys) {
      const auto pointer = [full_name = model.name + "." + key.name, value = key.value](Config& config) {
        Value& held = config.model.own_values.try_emplace(full_name, value).first->second;
        return std::visit([](auto& of_type) -> ValuePointer { return &of_type; }, held);
      };
      Allowed allowed;
      allowed.least = key.least;
      allowed.most = key.most;
      allowed.names.assign(key.names.begin(), key.names.end());
      own.push_back({section, key.name, pointer, std::move(allowed), key.meaning,
                     static_cast<KeyKind>(key.value.index()), &key.value});
    }
  }
  const auto is_behind_model = [](const auto& each) {
    if constexpr (std::is_same_v<std::decay_t<decltype(each)>, Key>) {
      return each.section != "model";
    } else {
      return each.name != "model";
    }
  };
  keys_.insert(std::find_if(keys_.begin(), keys_.end(), is_behind_model), own.begin(), own.end());
  sections_.insert(std::find_if(sections_.begin(), sections_.end(), is_behind_model), own_sections.begin(),
                   own_sections.end());
}

const KeyTable& key_table(const std::string& library) {
  static const KeyTable built_in;
  if (library.empty()) return built_in;
  static std::mutex mutex;
  static std::map<std::shared_ptr<const ModelLibraryKeys>, std::unique_ptr<const KeyTable>> tables;
  auto keys = read_model_library(library);
  const std::lock_guard lock(mutex);
  std::unique_ptr<const KeyTable>& table = tables[keys];
  if (!table) table = std::make_unique<const KeyTable>(std::move(keys));
  return *table;
}

const Key& KeyTable::find(std::string_view full_name, std::string_view place) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) {
    return full_name.size() == key.section.size() + 1 + key.name.size() && full_name.starts_with(key.section) &&
           full_name[key.section.size()] == '.' && full_name.ends_with(key.name);
  });
  if (found != keys_.end()) return *found;
  // A very long name would take very long to compare, and nobody could read it.
  const std::string shown(full_name.substr(0, 80));
  const auto meant = meant_key(*this, shown);
  std::string cure = meant ? fmt::format("did you mean {}?", *meant) : "all keys: trireme train --show-config";
  // The user made up a section: the proposed name alone may not explain why it is the right key.
  const size_t dot = shown.find('.');
  if (meant && dot != std::string::npos && shown.substr(dot) == meant->substr(meant->find('.')) &&
      !is_section(*this, shown.substr(0, dot)) && edit_distance(shown, *meant) > 2) {
    cure += fmt::format(" It is: {}", find(*meant, place).meaning);
  }
  throw wrong_key(printable(shown), fmt::format("unknown key {} ({})", printable(shown), place), cure);
}

}  // namespace trireme
