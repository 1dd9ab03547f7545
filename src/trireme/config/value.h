// Values of keys: parsing, checked assignment, formatting; and the errors about them.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/key.h"

namespace trireme {

/// The value of a key; of a library's key that has not been set, its default.
Value get_value(const Config& config, const Key& key);
Value value_from(const Json& json);

/// Checks type, range and names, then assigns. A double without a fraction is accepted for a whole number (1e6), and a
/// whole number for a double. Throws UsageError that names key, value, `place` ("FILE.toml:12:1", "command line") and
/// what is expected.
void set_value(Config& config, const Key& key, const Value& value, std::string_view place);

/// set_value() by name, for built-in keys; records `origin` as the key's origin.
void set_key(Config& config, std::string_view name, const Value& value, const std::string& origin);

/// Parses a word of a command line as the key's type. "1,500", "1_500" and "1.5e3" are numbers. Throws as set_value().
Value parse_value(const Key& key, std::string_view text, std::string_view place);

/// Formats as TOML; texts are quoted and escaped.
std::string format_value(const Value& value);

/// For messages: replaces control characters and invalid UTF-8, and shortens long text.
std::string printable(std::string_view text);
bool is_utf8(std::string_view text);

/// "model.heads = 5 (from FILE.toml:12)".
std::string with_origin(const Config& config, std::string_view key);

/// An error about a key; it carries the key's name.
UsageError wrong_key(std::string_view key, const std::string& cause, const std::string& cure = {});

/// Throws UsageError: "KEY = … (…) PROBLEM", then the cure.
[[noreturn]] void refuse(const Config& config, std::string_view key, std::string_view problem,
                         const std::string& cure = {});

/// Throws UsageError: "KEY = … (…) PROBLEM OTHER = … (…)", then the cure.
[[noreturn]] void contradict(const Config& config, std::string_view key, std::string_view problem,
                             std::string_view other, const std::string& cure);

}  // namespace trireme
