#include "trireme/checkpoint/json_scanner.h"

#include <fmt/format.h>

#include <limits>

namespace trireme {
namespace {

constexpr int kMaxDepth = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string* out, uint32_t code) {
  if (out == nullptr) return;
  const auto byte = [out](uint32_t value) { out->push_back(static_cast<char>(value)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

}  // namespace

void JsonScanner::fail(const std::string& problem) { throw JsonError(at_, problem); }

void JsonScanner::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

size_t JsonScanner::position() {
  skip_space();
  return at_;
}

char JsonScanner::peek() {
  skip_space();
  if (at_ == text_.size()) fail("the text ends too early");
  return text_[at_];
}

void JsonScanner::expect(char wanted) {
  if (peek() != wanted) fail(fmt::format("expected {}", wanted));
  ++at_;
}

void JsonScanner::open(char bracket) {
  expect(bracket);
  fresh_ = true;
}

bool JsonScanner::close(char bracket) {
  const bool first = fresh_;
  fresh_ = false;
  if (peek() == bracket) {
    ++at_;
    return true;
  }
  if (!first) {
    if (text_[at_] != ',') fail(fmt::format("expected , or {}", bracket));
    ++at_;
  }
  return false;
}

std::string JsonScanner::key() {
  std::string name = text();
  expect(':');
  return name;
}

std::string JsonScanner::text() {
  std::string out;
  if (peek() != '"') fail("expected a text");
  scan_text(&out);
  return out;
}

void JsonScanner::scan_text(std::string* out) {
  ++at_;
  for (;;) {
    if (at_ == text_.size()) fail("a text has no end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c < 0x20) fail("a control character in a text");
    if (c == '\\') {
      scan_escape(out);
    } else if (c >= 0x80) {
      scan_utf8(out);
    } else {
      if (out != nullptr) out->push_back(text_[at_]);
      ++at_;
    }
  }
  ++at_;
}

void JsonScanner::scan_escape(std::string* out) {
  ++at_;
  if (at_ == text_.size()) fail("a text has no end");
  const char c = text_[at_++];
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return append_utf8(out, static_cast<unsigned char>(c));
    case 'b':
      return append_utf8(out, '\b');
    case 'f':
      return append_utf8(out, '\f');
    case 'n':
      return append_utf8(out, '\n');
    case 'r':
      return append_utf8(out, '\r');
    case 't':
      return append_utf8(out, '\t');
    case 'u':
      break;
    default:
      --at_;
      fail("an unknown escape in a text");
  }
  uint32_t code = scan_hex();
  if (code >= 0xDC00 && code < 0xE000) fail("half of a character in a text");
  if (code >= 0xD800 && code < 0xDC00) {
    if (text_.substr(at_, 2) != "\\u") fail("half of a character in a text");
    at_ += 2;
    const uint32_t low = scan_hex();
    if (low < 0xDC00 || low >= 0xE000) fail("half of a character in a text");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
}

uint32_t JsonScanner::scan_hex() {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_ == text_.size()) fail("a text has no end");
    const char c = text_[at_];
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      code = code * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      fail("\\u needs four hexadecimal digits");
    }
  }
  return code;
}

void JsonScanner::scan_utf8(std::string* out) {
  const auto first = static_cast<unsigned char>(text_[at_]);
  const int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  uint32_t code = first & (0xFF >> (length + 1));
  if (first < 0xC2 || first > 0xF4 || text_.size() - at_ < static_cast<size_t>(length)) fail("not UTF-8");
  for (int i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text_[at_ + static_cast<size_t>(i)]);
    if ((next & 0xC0) != 0x80) fail("not UTF-8");
    code = code << 6 | (next & 0x3F);
  }
  const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("not UTF-8");
  append_utf8(out, code);
  at_ += static_cast<size_t>(length);
}

uint64_t JsonScanner::number() {
  if (!is_digit(peek())) fail("expected a whole number that is not negative");
  const size_t first = at_;
  uint64_t value = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) fail("the number is too large");
    value = value * 10 + digit;
  }
  if (text_[first] == '0' && at_ - first > 1) fail("a number begins with 0");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    fail("expected a whole number");
  }
  return value;
}

void JsonScanner::scan_number() {
  const auto digits = [this] {
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("a number without digits");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  if (text_[at_] == '-') ++at_;
  const size_t first = at_;
  digits();
  if (text_[first] == '0' && at_ - first > 1) fail("a number begins with 0");
  if (at_ < text_.size() && text_[at_] == '.') ++at_, digits();
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
}

void JsonScanner::scan_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail("expected a value");
  at_ += word.size();
}

void JsonScanner::skip(int depth) {
  if (depth > kMaxDepth) fail(fmt::format("more than {} levels deep", kMaxDepth));
  switch (peek()) {
    case '{':
      return object([&](const std::string&) { skip(depth + 1); });
    case '[':
      return array([&] { skip(depth + 1); });
    case '"':
      return scan_text(nullptr);
    case 't':
      return scan_word("true");
    case 'f':
      return scan_word("false");
    case 'n':
      return scan_word("null");
    default:
      if (text_[at_] != '-' && !is_digit(text_[at_])) fail("expected a value");
      scan_number();
  }
}

std::string_view JsonScanner::raw() {
  const size_t first = position();
  skip(1);
  return text_.substr(first, at_ - first);
}

void JsonScanner::end() {
  skip_space();
  if (at_ != text_.size()) fail("something follows the end");
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  out += '"';
  JsonScanner(out).raw();  // refuses what is no UTF-8
  return out;
}

}  // namespace trireme
