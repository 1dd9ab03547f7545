// Small helpers on text: split, join, trim, and the name that somebody probably meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Without white space at both ends.
std::string_view trim(std::string_view text);
/// ASCII letters in lower case, the rest as it is.
std::string to_lower(std::string_view text);
/// The parts between separators, trimmed; empty parts are kept. An empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Works on any range of strings.
template <typename Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string joined;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) joined += separator;
    joined += std::string_view(part);
    first = false;
  }
  return joined;
}

/// "[2, 3]".
std::string sizes_text(std::span<const int64_t> sizes);

/// A character of a UTF-8 text.
struct Character {
  uint32_t code_point = 0;
  size_t num_bytes = 0;
  bool is_valid = false;  ///< false: a byte that is not UTF-8, on its own
};

/// The character that starts at `at` < text.size(). Overlong forms, surrogates and cut ones are not valid.
Character utf8_at(std::string_view text, size_t at);

/// As people sort names: numbers in them by their value, so that layers.9 comes before layers.10.
bool natural_less(std::string_view a, std::string_view b);

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other, blind to case.
size_t edit_distance(std::string_view a, std::string_view b);

/// The closest of `names` (the first of equals), or nothing where none is close enough to be what was meant.
template <typename Range>
std::optional<std::string> nearest(std::string_view text, const Range& names) {
  size_t best = text.size() / 3 + 2;  // a third of the letters may be wrong, and one more
  std::optional<std::string> found;
  for (const auto& name : names) {
    const size_t distance = edit_distance(text, std::string_view(name));
    if (distance >= best || distance >= std::string_view(name).size()) continue;
    best = distance;
    found = std::string(std::string_view(name));
  }
  return found;
}

}  // namespace trireme
