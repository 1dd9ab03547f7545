#include "trireme/config/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/config_file.h"
#include "trireme/config/key.h"
#include "trireme/config/presets.h"
#include "trireme/config/stages.h"
#include "trireme/config/task.h"
#include "trireme/config/toml/toml_text.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr std::string_view kCommandLine = "command line", kDerived = "derived", kPresetKey = "model.preset";

/// One value that a layer sets. `place` is for error messages, `origin` for --show-config.
struct Setting {
  const Key* key;
  Value value;
  std::string place, origin;
};

std::vector<Setting> settings_of_toml(std::string_view text, const std::string& name, const KeyTable& table,
                                      const std::string& origin = {}) {
  std::vector<Setting> settings;
  for (const Assignment& assignment : read_toml(text, name)) {
    const std::string place = fmt::format("{}:{}:{}", name, assignment.line, assignment.column);
    const bool is_section = std::any_of(table.sections().begin(), table.sections().end(),
                                        [&](const Section& section) { return section.name == assignment.key; });
    if (is_section && assignment.shown == "a table") continue;  // of a library's model without keys
    if (is_section) {
      throw wrong_key(assignment.key, fmt::format("{} ({}) is a section, not a key", assignment.key, place),
                      assignment.key == "model" ? "did you mean model.preset or model.kind?"
                                                : fmt::format("write [{}], then its keys below", assignment.key));
    }
    const Key& key = table.find(assignment.key, place);
    if (!assignment.value) {
      throw wrong_key(
          key.full_name(),
          fmt::format("{} ({}) is {}, but must be {}", key.full_name(), place, assignment.shown, key.expected()),
          key.full_name() == "data.path" ? "several files: their folder, a pattern (\"data/*.txt\"), or names with "
                                           "commas between in one text"
                                         : "");
    }
    settings.push_back(
        {&key, *assignment.value, place, origin.empty() ? fmt::format("{}:{}", name, assignment.line) : origin});
  }
  return settings;
}

bool is_flag(std::string_view word) { return word.starts_with("--"); }

/// The model library that arguments or file name. Needed first, because it defines keys; empty: none.
std::string library_in(const std::vector<std::string>& arguments, std::string_view toml, const std::string& name) {
  constexpr std::string_view kWord = "--model.library";
  for (size_t i = arguments.size(); i-- > 0;) {
    const std::string_view word = arguments[i];
    if (word == kWord && i + 1 < arguments.size()) return arguments[i + 1];
    if (word.starts_with(kWord) && word.substr(kWord.size()).starts_with("=")) {
      return std::string(word.substr(kWord.size() + 1));
    }
  }
  for (const Assignment& assignment : read_toml(toml, name)) {
    const auto* text = assignment.value ? std::get_if<std::string>(&*assignment.value) : nullptr;
    if (text && assignment.key == "model.library") return *text;
  }
  return {};
}

std::vector<Setting> settings_of_arguments(const std::vector<std::string>& arguments, const KeyTable& table,
                                           std::string& file) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (!is_flag(word)) {
      throw UsageError(fmt::format("\"{}\" is not expected here", printable(word)),
                       "values follow their key: --section.key=value or --section.key value");
    }
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
    const bool is_model = name == "model";
    const Key& key = table.find(is_model ? kPresetKey : name, kCommandLine);
    std::optional<std::string_view> text;
    if (equals != word.npos) {
      text = word.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !is_flag(arguments[i + 1])) {
      text = arguments[++i];
    } else if (key.type_name() == "switch") {
      text = "true";
    }
    if (!text) throw wrong_key(name, fmt::format("--{} has no value: {} is expected", name, key.expected()));
    if (is_model && text->ends_with(".toml")) {
      if (!file.empty()) {
        throw UsageError(fmt::format("two configurations are given: {} and --model {}", file, *text),
                         "give one of them");
      }
      file = *text;
      continue;
    }
    settings.push_back(
        {&key, parse_value(key, *text, kCommandLine), std::string(kCommandLine), std::string(kCommandLine)});
  }
  return settings;
}

void put(Config& config, const std::vector<Setting>& settings) {
  const auto put_one = [&](const Setting& setting) {
    set_value(config, *setting.key, setting.value, setting.place);
    config.origins.set(setting.key->full_name(), setting.origin);
  };
  for (const Setting& setting : settings) {  // first, because it defines the values of model.kind
    if (setting.key->full_name() == "model.library") put_one(setting);
  }
  for (const Setting& setting : settings) put_one(setting);
}

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Derives values that were not set, or were set to 0 for "derive it". `preset`: the config of the preset alone.
void derive(Config& config, const Config& preset, const std::string& file) {
  ModelSection& model = config.model;
  Origins& origins = config.origins;
  // A preset's target loss is only for the preset's task, which includes the number of steps.
  if (!is_same_task(config, preset) && origins.of("train.target_loss").starts_with("preset ")) {
    config.train.target_loss = 0;
    origins.set("train.target_loss", std::string(kDerived));
  }
  const auto open = [&](std::string_view key, int64_t value) { return origins.is_default(key) || value == 0; };
  if (!model.library.empty()) {
    model.library = std::filesystem::absolute(model.library).lexically_normal().string();
    for (const Key& key : key_table(model.library).keys()) {
      if (key.own_default) (void)key.pointer(config);  // inserts the default
    }
  }
  const bool is_llama = model.kind == ModelKind::kLlama;
  if (open("model.kv_heads", model.kv_heads)) {
    model.kv_heads = model.heads;
    origins.set("model.kv_heads", std::string(kDerived));
  }
  if (open("model.ffn", model.ffn)) {
    model.ffn = is_llama ? round_up((model.hidden * 8 + 2) / 3, 256) : 4 * model.hidden;
    origins.set("model.ffn", std::string(kDerived));
  }
  if (origins.is_default("model.tied")) {
    model.tied = !is_llama;
    origins.set("model.tied", std::string(kDerived));
  }
  if (!config.parallel.stages.empty() && origins.is_default("parallel.pp")) {
    config.parallel.pp = std::ssize(stage_degrees(config));
    origins.set("parallel.pp", std::string(kDerived));
  }
  if (config.observe.name.empty()) {
    const std::string stem = printable(std::filesystem::path(file).stem().string());
    config.observe.name = !stem.empty() ? stem : !model.preset.empty() ? model.preset : "run";
    origins.set("observe.name", std::string(kDerived));
  }
}

/// Keys of [model] that count for a model of a library, besides its own.
std::vector<std::string_view> keys_of_library_models(SampleKind samples) {
  std::vector<std::string_view> names = {"preset", "library", "kind"};
  if (samples == SampleKind::kImages) names.insert(names.end(), {"channels", "image", "classes"});
  if (samples == SampleKind::kTokens) names.insert(names.end(), {"seq", "vocab"});
  return names;
}

/// A library's model reads its own keys, so others must not seem to change it. `unset`: the config without the user's
/// values. A config that a run has saved sets every key, so only values that differ are refused.
void refuse_keys_without_effect(const Config& config, const Config& unset) {
  const ModelSection& model = config.model;
  if (!model.is_own() || model.own_kind == name_of(ModelKind::kOwn)) return;
  const std::vector<std::string_view> counting = keys_of_library_models(model.own_samples);
  const std::string own_section = "model." + model.own_kind;
  const KeyTable& table = key_table(model.library);
  for (const Key& key : table.keys()) {
    if (key.section != "model" || std::count(counting.begin(), counting.end(), key.name) > 0) continue;
    if (get_value(config, key) == get_value(unset, key)) continue;
    std::string cure = fmt::format("its own keys are in [{}]", own_section);
    for (const Key& own : table.keys()) {
      if (own.section == own_section && own.name == key.name) cure = fmt::format("did you mean {}?", own.full_name());
    }
    refuse(config, key.full_name(), fmt::format("has no effect on model.kind = {}", model.own_kind), cure);
  }
}

/// The last setting that names a preset; the command line overrides the file.
const Setting* find_preset_setting(const std::vector<Setting>& of_file, const std::vector<Setting>& of_arguments) {
  const Setting* found = nullptr;
  for (const auto* settings : {&of_file, &of_arguments}) {
    for (const Setting& setting : *settings) {
      if (setting.key->full_name() == kPresetKey) found = &setting;
    }
  }
  return found;
}

Config layer(const std::vector<Setting>& of_file, const std::vector<Setting>& of_arguments,
             const std::string& default_preset, const std::string& file) {
  Config config;
  config.model.preset = default_preset;
  if (const Setting* preset = find_preset_setting(of_file, of_arguments)) put(config, {*preset});
  if (!config.model.preset.empty()) {
    const Preset& preset = [&]() -> const Preset& {
      try {
        return find_preset(config.model.preset);
      } catch (const UsageError& error) {
        throw wrong_key(kPresetKey, fmt::format("model.preset ({}): {}", config.origins.of(kPresetKey), error.what()));
      }
    }();
    const std::string name = fmt::format("preset {}", preset.name);
    put(config, settings_of_toml(preset.toml, name, key_table(), name));
  }
  const Config as_preset = config;
  put(config, of_file);
  put(config, of_arguments);
  derive(config, as_preset, file);
  Config unset = as_preset;
  unset.model.kind = config.model.kind;  // from which other values are derived
  derive(unset, as_preset, file);
  refuse_keys_without_effect(config, unset);
  return config;
}

}  // namespace

const std::string& Origins::of(std::string_view key) const {
  static const std::string kDefault = "default";
  const auto found = origins_.find(key);
  return found == origins_.end() ? kDefault : found->second;
}

void Origins::set(std::string_view key, std::string origin) { origins_[std::string(key)] = std::move(origin); }

bool Origins::is_default(std::string_view key) const { return origins_.find(key) == origins_.end(); }

std::string Origins::phrase(std::string_view key) const {
  const std::string& origin = of(key);
  if (origin == "default") return "the default";
  if (origin == kDerived) return origin;
  const bool needs_article = origin == kCommandLine || origin.starts_with("preset ");
  return fmt::format("from {}{}", needs_article ? "the " : "", origin);
}

Config resolve(const ConfigSources& sources) {
  std::string file = sources.file;
  const std::string early = file.empty() ? "" : read_config_file(file);
  std::string library = library_in(sources.arguments, early, printable(file));
  const std::vector<Setting> of_arguments = settings_of_arguments(sources.arguments, key_table(library), file);
  std::vector<Setting> of_file;
  if (!file.empty()) {
    const std::string text = early.empty() ? read_config_file(file) : early;
    library = library_in(sources.arguments, text, printable(file));
    of_file = settings_of_toml(text, printable(file), key_table(library));
  }
  return layer(of_file, of_arguments, file.empty() && library.empty() ? sources.default_preset : "", file);
}

Config resolve_text(std::string_view toml, const std::string& name, const std::vector<std::string>& arguments) {
  std::string file = name;  // so that --model FILE.toml is rejected as a second file
  const KeyTable& table = key_table(library_in(arguments, toml, printable(name)));
  const std::vector<Setting> of_arguments = settings_of_arguments(arguments, table, file);
  return layer(settings_of_toml(toml, printable(name), table), of_arguments, "", name);
}

std::string to_toml(const Config& config) {
  std::string text;
  const KeyTable& table = key_table(config.model.library);
  for (const Section& section : table.sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Key& key : table.keys()) {
      if (key.section != section.name) continue;
      const std::string line = fmt::format("{} = {}", key.name, format_value(get_value(config, key)));
      text += fmt::format("{:<36}  # {}\n", line, printable(config.origins.of(key.full_name())));
    }
  }
  return text;
}

}  // namespace trireme
