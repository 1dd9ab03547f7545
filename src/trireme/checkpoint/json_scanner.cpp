#include "trireme/checkpoint/json_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

constexpr int kMaxDepth = 64;

/// Takes nothing from the events of a text but whether it is JSON, and how deep.
class Validity : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(std::string&) override { return true; }
  bool start_object(size_t) override { return start(); }
  bool start_array(size_t) override { return start(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(size_t num_read, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();  // "[json.exception.…] what happened"
    const size_t close = text.find("] ");
    throw JsonError(num_read - std::min<size_t>(num_read, 1),
                    std::string(close == text.npos ? text : text.substr(close + 2)));
  }

 private:
  bool start() {
    if (++depth_ > kMaxDepth) throw JsonError(0, fmt::format("more than {} levels deep", kMaxDepth));
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  int depth_ = 0;
};

}  // namespace

JsonScanner::JsonScanner(std::string_view text) : text_(text) {
  Validity validity;
  nlohmann::json::sax_parse(text.begin(), text.end(), &validity);
}

void JsonScanner::fail(const std::string& problem) const { throw JsonError(at_, problem); }

size_t JsonScanner::position() {
  at_ = std::min(text_.find_first_not_of(" \n\t\r", at_), text_.size());
  return at_;
}

char JsonScanner::peek() {
  if (position() == text_.size()) fail("the text ends too early");
  return text_[at_];
}

bool JsonScanner::take(char wanted) {
  if (peek() != wanted) return false;
  ++at_;
  return true;
}

void JsonScanner::expect(char wanted) {
  if (!take(wanted)) fail(fmt::format("expected {}", wanted));
}

/// A text with its quotes.
std::string_view JsonScanner::quoted() {
  if (peek() != '"') fail("expected a text");
  const size_t first = at_++;
  while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
  return text_.substr(first, ++at_ - first);
}

std::string JsonScanner::text() {
  const std::string_view written = quoted();
  if (written.find('\\') == written.npos) return std::string(written.substr(1, written.size() - 2));
  return nlohmann::json::parse(written).get<std::string>();
}

uint64_t JsonScanner::number() {
  if (peek() < '0' || peek() > '9') fail("expected a whole number that is not negative");
  uint64_t value = 0;
  const char* const begin = text_.data();
  const auto [end, error] = std::from_chars(begin + at_, begin + text_.size(), value);
  if (error != std::errc()) fail("the number is too large");
  if (end != begin + text_.size() && (*end == '.' || *end == 'e' || *end == 'E')) fail("expected a whole number");
  at_ = static_cast<size_t>(end - begin);
  return value;
}

std::string_view JsonScanner::raw_object() {
  if (peek() != '{') fail("expected {");
  const size_t first = at_;
  int depth = 0;
  do {
    const char c = peek();
    if (c == '"') {
      quoted();
      continue;
    }
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    ++at_;
  } while (depth > 0);
  return text_.substr(first, at_ - first);
}

void JsonScanner::end() {
  if (position() != text_.size()) fail("something follows the end");  // a zero byte, which ends a text for nlohmann
}

std::string json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw JsonError(0, "not UTF-8");
  }
}

}  // namespace trireme
