// Helpers that both kinds of plan files use. Internal to this folder.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/layout/placement.h"

namespace trireme {

/// Parses JSON; `name` is the file's name in messages. Throws UsageError if it is malformed.
inline Json parse_plan(std::string_view text, const std::string& name) {
  return parse_json(text, name + " is no plan: it is no JSON", "mend it there, or plan anew: trireme plan");
}

inline JsonReader plan_reader(const Json& json, const std::string& name, const std::string& where = {}) {
  return {json, name + " is no plan", where, "trireme plan --out FILE writes one, and parallelize() with .write_plan"};
}

/// Parses a range such as "0-20".
inline std::pair<int64_t, int64_t> read_range(JsonReader& read, const char* name) {
  std::string text;
  read(name, text);
  const std::vector<std::string_view> ends = split(text, '-');
  try {
    if (ends.size() == 2) {
      const int64_t first = std::stoll(std::string(ends[0])), last = std::stoll(std::string(ends[1]));
      if (first >= 0 && last >= first) return {first, last};
    }
  } catch (const std::exception&) {  // not numbers
  }
  read.fail(fmt::format("\"{}\" is \"{}\"", name, text), "first and last, as in \"0-20\"");
}

/// Parses "shard(0, unit 2), replicate"; commas inside parentheses belong to a placement. Throws UsageError.
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
