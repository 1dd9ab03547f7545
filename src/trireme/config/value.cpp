#include "trireme/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

constexpr size_t kShownBytes = 80;
constexpr std::string_view kModelSection = "model.";

/// Number of bytes of the UTF-8 character at the start of `text`; 0 if there is none.
size_t utf8_length(std::string_view text) {
  const Character c = text.empty() ? Character{} : utf8_at(text, 0);
  return c.is_valid ? c.num_bytes : 0;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

[[noreturn]] void refuse(const Key& key, const std::string& shown, std::string_view place) {
  std::string cure;
  if (!key.allowed.names.empty()) {
    std::string bare = shown;
    std::erase(bare, '"');
    if (const auto meant = nearest(bare, key.allowed.names)) cure = fmt::format("did you mean \"{}\"?", *meant);
  }
  if (key.full_name() == "precision.compute" && shown.find("fp8") != std::string::npos) {
    cure = "products alone are in fp8: precision.matmul = \"fp8\", with precision.compute = \"bfloat16\"";
  }
  throw wrong_key(key.full_name(),
                  fmt::format("{} = {} ({}) must be {}", key.full_name(), shown, place, key.expected()), cure);
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (is_control(c)) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

/// Formats a value for messages: texts are made printable and short.
std::string shown(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? format_value(value) : "\"" + printable(*text) + "\"";
}

std::optional<double> as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value); number && std::isfinite(*number)) return *number;
  return std::nullopt;
}

/// Sets model.kind: a built-in kind, a model of the library, or "own", given by a program to its Trainer.
void set_kind(ModelConfig& model, const std::string& name) {
  model.kind = is_built_in(name) ? model_kind(name) : ModelKind::kOwn;
  model.own_kind = model.is_own() ? name : "";
  model.own_samples = model.is_own() && name != name_of(ModelKind::kOwn)
                          ? read_model_library(model.library)->find(name).samples
                          : SampleKind::kOwn;
}

/// Replaces an alias by its name; returns other values unchanged.
Value without_alias(const Allowed& allowed, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  const auto* on = std::get_if<bool>(&value);
  if (text == nullptr && on == nullptr) return value;
  const std::string_view word = text ? std::string_view(*text) : *on ? "true" : "false";
  for (const auto& [alias, name] : allowed.aliases) {
    if (word == alias) return std::string(name);
  }
  return value;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= kShownBytes) return result + "…";
    const size_t length = utf8_length(text);
    if (length == 0 || (length == 1 && is_control(text[0]))) {
      result += '?';
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

Value get_value(const Config& config, const Key& key) {
  if (key.own_default) {
    const auto found = config.model.own_values.find(key.full_name().substr(kModelSection.size()));
    return found == config.model.own_values.end() ? *key.own_default : found->second;
  }
  // The table has one pointer for reading and writing; nothing is written.
  const ValuePointer pointer = key.pointer(const_cast<Config&>(config));
  return std::visit(
      [&](const auto& at) -> Value {
        using At = std::decay_t<decltype(at)>;
        if constexpr (std::is_same_v<At, ModelKind*>) {
          return config.model.name();
        } else if constexpr (std::is_same_v<At, Choice>) {
          return std::string(at.names[*at.value]);
        } else {
          return *at;
        }
      },
      pointer);
}

Value value_from(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  return json.get<std::string>();
}

void set_value(Config& config, const Key& key, const Value& given, std::string_view place) {
  const ValuePointer pointer = key.pointer(config);
  const Allowed& allowed = key.allowed;
  const Value value = without_alias(allowed, given);
  const std::optional<double> number = as_number(value);
  const bool in_range = number && *number >= allowed.least && *number <= allowed.most;
  const auto* text = std::get_if<std::string>(&value);
  const bool named =
      text != nullptr && (allowed.names.empty() || std::count(allowed.names.begin(), allowed.names.end(), *text) > 0 ||
                          (!allowed.file.empty() && names_file(*text)));
  if (auto* const* whole = std::get_if<int64_t*>(&pointer)) {
    if (!in_range || *number != std::trunc(*number)) refuse(key, shown(value), place);
    **whole = static_cast<int64_t>(*number);
  } else if (auto* const* real = std::get_if<double*>(&pointer)) {
    if (!in_range) refuse(key, shown(value), place);
    **real = *number;
  } else if (auto* const* on = std::get_if<bool*>(&pointer)) {
    if (!std::holds_alternative<bool>(value)) refuse(key, shown(value), place);
    **on = std::get<bool>(value);
  } else if (!named) {
    refuse(key, shown(value), place);
  } else if (std::holds_alternative<ModelKind*>(pointer)) {
    set_kind(config.model, *text);
  } else if (const auto* choice = std::get_if<Choice>(&pointer)) {
    *choice->value =
        static_cast<uint8_t>(std::find(choice->names.begin(), choice->names.end(), *text) - choice->names.begin());
  } else {
    // Both a valid path and a valid TOML string.
    if (!is_utf8(*text) || text->find('\0') != std::string::npos) {
      throw wrong_key(key.full_name(), fmt::format("{} = {} ({}) must be UTF-8 without zero bytes", key.full_name(),
                                                   shown(value), place));
    }
    *std::get<std::string*>(pointer) = *text;
  }
}

void set_key(Config& config, std::string_view name, const Value& value, const std::string& origin) {
  set_value(config, find_key(name, origin), value, origin);
  config.origins.set(name, origin);
}

Value parse_value(const Key& key, std::string_view text, std::string_view place) {
  const std::string_view type = key.type_name();
  if (type == "text") return std::string(text);
  const std::string_view word = trim(text);
  if (type == "switch") {
    if (word == "true" || word == "false") return word == "true";
    if (key.allowed.names.empty()) refuse(key, printable(text), place);
    return std::string(word);
  }
  std::string digits(word);
  std::erase(digits, '_');
  if (digits.find(',') != std::string::npos) {
    try {
      return static_cast<int64_t>(std::min<uint64_t>(parse_count(digits), uint64_t{1} << 62));
    } catch (const UsageError&) {
      refuse(key, printable(text), place);
    }
  }
  const char* const end = digits.data() + digits.size();
  int64_t whole = 0;
  if (const auto [stop, error] = std::from_chars(digits.data(), end, whole); stop == end && error == std::errc{}) {
    return whole;
  }
  double number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (stop != end || error != std::errc{}) refuse(key, printable(text), place);
  return number;
}

std::string format_value(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
  if (const auto* on = std::get_if<bool>(&value)) return *on ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  std::string number = fmt::format("{}", std::get<double>(value));
  // TOML distinguishes 1.0 from 1.
  if (number.find_first_not_of("-0123456789") == std::string::npos) number += ".0";
  return number;
}

std::string with_origin(const Config& config, std::string_view key) {
  const std::string value = format_value(get_value(config, find_key(key, "check")));
  return fmt::format("{} = {} ({})", key, value, config.origins.phrase(key));
}

UsageError wrong_key(std::string_view key, const std::string& cause, const std::string& cure) {
  return UsageError(cause, cure, {.key = std::string(key)});
}

void refuse(const Config& config, std::string_view key, std::string_view problem, const std::string& cure) {
  throw wrong_key(key, fmt::format("{} {}", with_origin(config, key), problem), cure);
}

void contradict(const Config& config, std::string_view key, std::string_view problem, std::string_view other,
                const std::string& cure) {
  refuse(config, key, fmt::format("{} {}", problem, with_origin(config, other)), cure);
}

}  // namespace trireme
