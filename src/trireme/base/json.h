// JSON: one type, one way to read files that people write, and one for files that may come from anybody.
//
// Write with Json. Read what trireme has written itself with Json::parse(); what people edit with parse_json() and
// JsonReader, which say line, key and cure; what strangers send with parse_strict_json().
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

/// Objects keep the order in which their keys were added: how every file and report writes them.
using Json = nlohmann::ordered_json;

/// Where a text stops being JSON, for whoever wrote it: "line 3, column 5: a ',' or a '}' is expected, and here is
/// '"'". Lines and columns (bytes) count from 1. Empty for a text that is JSON.
std::string json_fault(std::string_view text);

/// Throws UsageError where it is not JSON: `problem`, ": " and the fault, then the cure.
Json parse_json(std::string_view text, const std::string& problem, const std::string& cure);

/// What is wrong with a text that may come from anybody, and at which byte.
class JsonError : public Error {
 public:
  JsonError(size_t byte, const std::string& problem) : Error(problem), byte_(byte) {}
  size_t byte() const { return byte_; }

 private:
  size_t byte_;
};

/// At most 64 levels deep, and no name twice in an object. Takes memory in proportion to the text. Throws JsonError.
nlohmann::json parse_strict_json(std::string_view text);

/// A failure as every `--json` prints it: "error", "cure" where there is one, and the fields of Where that are known.
Json failure_json(const std::exception& error);
/// Such an object on one line, and the error that it was made of, as far as it tells.
std::string failure_to_text(const std::exception& error);
Error failure_from_text(std::string_view text);

/// Takes an object apart. Throws UsageError that names the key for what is missing, of another kind, or unknown.
class JsonReader {
 public:
  /// `file` begins every message and `cure` ends it where there is no better one; `where` leads to the object. The
  /// object must outlive the reader.
  JsonReader(const Json& object, std::string file, std::string where = {}, std::string cure = {});

  template <typename Value>
  void operator()(const char* name, Value& value) {
    take(name, part(name), value);
  }
  /// Leaves the value where the key is not there.
  template <typename Value>
  void maybe(const char* name, Value& value) {
    if (const Json* found = find(name)) take(name, *found, value);
  }
  /// What a key stands for.
  const Json& part(const char* name);
  /// Null where it is not there.
  const Json* find(const char* name);
  /// One of its parts, an object.
  JsonReader inside(const char* name) { return {part(name), file_, path(name), cure_}; }
  /// Throws where there are keys that nobody has asked for.
  void finish() const;
  [[noreturn]] void fail(const std::string& problem, const std::string& cure = {}) const;

 private:
  template <typename Value>
  void take(const char* name, const Json& json, Value& value) const {
    if constexpr (std::is_same_v<Value, std::string>) {
      demand(json.is_string(), name, json, "a text");
    } else if constexpr (std::is_same_v<Value, bool>) {
      demand(json.is_boolean(), name, json, "true or false");
    } else if constexpr (std::is_same_v<Value, int>) {
      const bool fits = json.is_number_unsigned() && json.get<uint64_t>() <= 2'147'483'647;
      demand(fits, name, json, "a whole number from 0 to 2,147,483,647");
    } else if constexpr (std::is_same_v<Value, int64_t>) {
      demand(json.is_number_integer(), name, json, "a whole number");
    } else {
      demand(json.is_number(), name, json, "a number");
    }
    value = json.get<Value>();
  }
  void demand(bool holds, const char* name, const Json& json, const char* wanted) const;
  std::string path(std::string_view name) const;

  const Json& object_;
  std::string file_, where_, cure_;
  std::vector<std::string> known_;
};

}  // namespace trireme
