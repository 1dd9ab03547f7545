// Takes plan files apart; for the files beside it.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/json_fault.h"
#include "trireme/base/text.h"
#include "trireme/layout/placement.h"

namespace trireme {

constexpr const char* kPlanCure = "trireme plan --out FILE writes one, and parallelize() with .write_plan";

/// Takes an object apart, and complains of what is missing, of another kind, or unknown.
class JsonReader {
 public:
  JsonReader(const Json& json, std::string file, std::string where)
      : json_(json), file_(std::move(file)), where_(std::move(where)) {
    if (!json.is_object()) fail(fmt::format("{} is no object", where_.empty() ? "it" : where_));
  }

  template <typename Value>
  void operator()(const char* name, Value& value) {
    known_.insert(name);
    const auto found = json_.find(name);
    if (found == json_.end()) fail(fmt::format("there is no \"{}\"", path(name)));
    if constexpr (std::is_same_v<Value, std::string>) {
      demand(found->is_string(), name, "text");
    } else if constexpr (std::is_same_v<Value, bool>) {
      demand(found->is_boolean(), name, "true or false");
    } else if constexpr (std::is_same_v<Value, int64_t>) {
      demand(found->is_number_integer(), name, "a whole number");
    } else {
      demand(found->is_number(), name, "a number");
    }
    value = found->get<Value>();
  }
  bool has(const char* name) const { return json_.contains(name); }
  const Json& part(const char* name) {
    known_.insert(name);
    const auto found = json_.find(name);
    if (found == json_.end()) fail(fmt::format("there is no \"{}\"", path(name)));
    return *found;
  }
  /// "0-20".
  std::pair<int64_t, int64_t> range(const char* name) {
    std::string text;
    (*this)(name, text);
    const std::vector<std::string_view> ends = split(text, '-');
    try {
      if (ends.size() == 2) {
        const int64_t first = std::stoll(std::string(ends[0])), last = std::stoll(std::string(ends[1]));
        if (first >= 0 && last >= first) return {first, last};
      }
    } catch (const std::exception&) {  // no numbers
    }
    fail(fmt::format("\"{}\" is \"{}\"", path(name), text), "first and last, as in \"0-20\"");
  }
  void finish() const {
    for (const auto& [name, value] : json_.items()) {
      if (known_.contains(name)) continue;
      const std::optional<std::string> meant = nearest(name, known_);
      fail(fmt::format("\"{}\" is unknown", path(name)), meant ? fmt::format("did you mean \"{}\"?", *meant) : "");
    }
  }
  [[noreturn]] void fail(const std::string& what, const std::string& cure = "") const {
    throw UsageError(fmt::format("{} is no plan: {}", file_, what), cure.empty() ? kPlanCure : cure);
  }

 private:
  std::string path(const std::string& name) const { return where_.empty() ? name : where_ + " → " + name; }
  void demand(bool holds, const char* name, const char* wanted) const {
    if (!holds) fail(fmt::format("\"{}\" is {}, not {}", path(name), json_.at(name).dump(), wanted));
  }

  const Json& json_;
  std::string file_, where_;
  std::set<std::string> known_;
};

/// `name` stands for the file. Throws UsageError where it is no JSON.
inline Json parse_plan(std::string_view text, const std::string& name) {
  try {
    return Json::parse(text);
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{} is no plan: it is no JSON: {}", name, json_fault(text)),
                     "mend it there, or plan anew: trireme plan");
  }
}

/// "shard(0, unit 2), replicate": commas inside parentheses belong to a placement. Throws UsageError.
inline std::vector<Placement> placements_from(std::string_view text) {
  std::vector<Placement> placements;
  size_t first = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    placements.push_back(Placement::parse(trim(text.substr(first, i - first))));
    first = i + 1;
  }
  return placements;
}

}  // namespace trireme
