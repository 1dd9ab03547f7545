#include "trireme/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr size_t kMostLevels = 64;

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

/// Takes from the events of a text how deep it is, and whether a name comes twice in an object.
class Strictness : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(std::string& name) override {
    if (!names_.back().insert(name).second) throw JsonError(0, fmt::format("{} is given twice", name));
    return true;
  }
  bool start_object(size_t) override { return start(); }
  bool start_array(size_t) override { return start(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(size_t num_read, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view said = error.what();  // "[json.exception.…] what happened"
    const size_t close = said.find("] ");
    throw JsonError(num_read - std::min<size_t>(num_read, 1),
                    std::string(close == said.npos ? said : said.substr(close + 2)));
  }

 private:
  bool start() {
    names_.emplace_back();
    if (names_.size() > kMostLevels) throw JsonError(0, fmt::format("more than {} levels deep", kMostLevels));
    return true;
  }
  bool end() {
    names_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> names_;  ///< of what is open
};

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

Json parse_json(std::string_view text, const std::string& problem, const std::string& cure) {
  try {
    return Json::parse(text);
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}: {}", problem, json_fault(text)), cure);
  }
}

nlohmann::json parse_strict_json(std::string_view text) {
  // A zero byte ends a text for the parser.
  if (const size_t zero = text.find('\0'); zero != text.npos) throw JsonError(zero, "a zero byte");
  // The parser's own callback, beside building the tree, takes quadratic time for long objects.
  Strictness strictness;
  nlohmann::json::sax_parse(text.begin(), text.end(), &strictness);
  return nlohmann::json::parse(text);
}

Json failure_json(const std::exception& error) {
  Json json = {{"error", cause_of(error)}};
  if (const std::string cure = cure_of(error); !cure.empty()) json["cure"] = cure;
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr) return json;
  visit_where(ours->where(), [&](const char* name, const auto& field) {
    if constexpr (std::is_same_v<decltype(field), const std::string&>) {
      if (!field.empty()) json[name] = field;
    } else {
      if (field) json[name] = *field;
    }
  });
  return json;
}

std::string failure_to_text(const std::exception& error) {
  return failure_json(error).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Error failure_from_text(std::string_view text) {
  const Json failure = Json::parse(text);
  Where where;
  visit_where(where, [&](const char* name, auto& field) {
    const auto found = failure.find(name);
    if (found == failure.end()) return;
    if constexpr (std::is_same_v<decltype(field), std::string&>) {
      field = found->template get<std::string>();
    } else {
      field = found->template get<typename std::remove_reference_t<decltype(field)>::value_type>();
    }
  });
  return Error(failure.at("error"), failure.value("cure", ""), where);
}

JsonReader::JsonReader(const Json& object, std::string file, std::string where, std::string cure)
    : object_(object), file_(std::move(file)), where_(std::move(where)), cure_(std::move(cure)) {
  if (!object_.is_object()) fail(fmt::format("{} is not an object", where_.empty() ? "the whole" : where_));
}

const Json& JsonReader::part(const char* name) {
  const Json* const found = find(name);
  if (found == nullptr) fail(fmt::format("{} is missing", path(name)));
  return *found;
}

const Json* JsonReader::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() ? nullptr : &*found;
}

void JsonReader::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const auto meant = nearest(name, known_);
    fail(fmt::format("{} is unknown", path(name)),
         meant ? fmt::format("did you mean {}?", *meant) : "known: " + join(known_, ", "));
  }
}

void JsonReader::fail(const std::string& problem, const std::string& cure) const {
  throw UsageError(fmt::format("{}: {}", file_, problem), cure.empty() ? cure_ : cure, {.file = file_});
}

void JsonReader::demand(bool holds, const char* name, const Json& json, const char* wanted) const {
  if (!holds) fail(fmt::format("{} must be {}, not {}", path(name), wanted, json.dump()));
}

std::string JsonReader::path(std::string_view name) const {
  return where_.empty() ? fmt::format("\"{}\"", name) : fmt::format("\"{}\" of {}", name, where_);
}

}  // namespace trireme
