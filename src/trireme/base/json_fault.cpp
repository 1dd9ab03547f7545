#include "trireme/base/json_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "trireme/base/json.h"

namespace trireme {
namespace {

/// What the parser was reading when it stopped, by the words of its message, and what belongs there. The first that is
/// found counts.
constexpr std::pair<std::string_view, std::string_view> kExpectations[] = {
    {"missing closing quote", "the quote that closes a text"},
    {"invalid string", "a text without line breaks and unknown escapes"},
    {"invalid number", "a digit"},
    {"number overflow", "a number that 64 bits can hold"},
    {"object key", "a name in double quotes"},
    {"object separator", "a ':' between name and value"},
    {"parsing object", "a ',' or a '}'"},
    {"parsing array", "a ',' or a ']'"},
    {"; expected end of input", "the end of the file"},
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+' || c == '_';
}

/// The parser stops at the end of a token that it did not expect; people look for its beginning.
size_t token_begin(std::string_view text, size_t end, bool is_literal) {
  if (text[end] == '"' && end > 0) {
    const size_t quote = text.rfind('"', end - 1);
    const bool same_line = quote != text.npos && text.substr(quote, end - quote).find('\n') == text.npos;
    return same_line ? quote : end;
  }
  const bool read_past = is_literal && end > 0 && !is_word(text[end]) && is_word(text[end - 1]);
  size_t begin = read_past ? end - 1 : end;
  while (is_word(text[begin]) && begin > 0 && is_word(text[begin - 1])) --begin;
  return begin;
}

std::string sentence(std::string_view text, size_t position, std::string_view message) {
  message = message.substr(0, message.find("; last read"));  // the rest is the file's
  std::string_view expected = "a value: a number, a text in double quotes, true, false, null, a list or an object";
  for (const auto& [words, what] : kExpectations) {
    if (message.find(words) == message.npos) continue;
    expected = what;
    break;
  }
  const bool is_cut = position >= text.size();
  const bool in_text = message.find("invalid string") != message.npos;
  const bool is_literal = message.find("invalid literal") != message.npos;
  const size_t at = is_cut ? text.size() : in_text ? position : token_begin(text, position, is_literal);
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t break_before = before.rfind('\n');
  const size_t column = break_before == before.npos ? at + 1 : at - break_before;
  const auto c = is_cut ? '\0' : text[at];
  const bool is_shown = std::isprint(static_cast<unsigned char>(c)) != 0;
  const std::string here = is_cut      ? "the text ends here"
                           : c == '\n' ? "the line ends here"
                           : is_shown  ? fmt::format("here is '{}'", c)
                                       : fmt::format("here is the byte {}", static_cast<unsigned char>(c));
  return fmt::format("line {}, column {}: {} is expected, and {}", line, column, expected, here);
}

}  // namespace

std::string json_fault(std::string_view text) {
  try {
    [[maybe_unused]] const nlohmann::json parsed = nlohmann::json::parse(text);
    return "";
  } catch (const nlohmann::json::parse_error& error) {
    return sentence(text, error.byte > 0 ? error.byte - 1 : 0, error.what());
  } catch (const nlohmann::json::out_of_range& error) {
    // Of a number that is too large the parser says which, not where.
    const std::string_view message = error.what();
    const size_t quote = message.find('\'');
    const std::string_view number = message.substr(quote + 1, message.rfind('\'') - quote - 1);
    const size_t begin = quote == message.npos ? text.npos : text.find(number);
    return sentence(text, begin == text.npos ? 0 : begin, message);
  }
}

}  // namespace trireme
