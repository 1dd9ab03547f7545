// Values of keys: read from words, put in place after a check, and written down.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/key.h"

namespace trireme {

Value get_value(const Config& config, const Key& key);
Value value_from(const Json& json);

/// Checks type, range and names. A whole double may stand for a whole number (1e6), and a whole number for a double.
/// Throws UsageError that names key, value, `place` ("FILE.toml:12:1", "command line") and what is expected.
void set_value(Config& config, const Key& key, const Value& value, std::string_view place);

/// As set_value(), which `origin` then has done.
void set_key(Config& config, std::string_view name, const Value& value, const std::string& origin);

/// From one word of a command line, by the key's type. "1,500", "1_500" and "1.5e3" are numbers. Throws as set_value().
Value parse_value(const Key& key, std::string_view text, std::string_view place);

/// As TOML writes it; texts quoted and escaped.
std::string format_value(const Value& value);

/// For messages: control characters and bytes that are not UTF-8 replaced, a long text cut.
std::string printable(std::string_view text);
bool is_utf8(std::string_view text);

/// "model.heads = 5 (from FILE.toml:12)".
std::string with_origin(const Config& config, std::string_view key);

/// What is wrong with a key, whose name the error carries.
UsageError wrong_key(std::string_view key, const std::string& cause, const std::string& cure = {});

/// Throws it: "KEY = … (…) PROBLEM", then the cure.
[[noreturn]] void refuse(const Config& config, std::string_view key, std::string_view problem,
                         const std::string& cure = {});

/// Throws UsageError: "KEY = … (…) PROBLEM OTHER = … (…)", then the cure.
[[noreturn]] void contradict(const Config& config, std::string_view key, std::string_view problem,
                             std::string_view other, const std::string& cure);

}  // namespace trireme
