#include "trireme/config/toml/toml_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kMaxDots = 256;

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// Tracks quotes and comments as the parser does. May differ past the parser's first error: the text is rejected
/// anyway.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    if (text_.starts_with("\xEF\xBB\xBF")) step(3);
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        step(std::min(text_.find('\n', at_), text_.size()) - at_);
      } else if (c == '"' || c == '\'') {
        skip_string(c);
        is_line_start_ = false;
      } else {
        check_plain(c);
        step(1);
      }
    }
  }

 private:
  char peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void step(size_t num_bytes) {
    for (; num_bytes > 0 && at_ < text_.size(); --num_bytes, ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        column_ = 1;
        dots_ = 0;
        is_line_start_ = true;
      } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80) {
        ++column_;  // counts characters, not bytes
      }
    }
  }

  size_t count_quotes(char quote) const {
    size_t count = 0;
    while (peek(count) == quote) ++count;
    return count;
  }

  /// Three quotes delimit a multi-line string, whose content may end in two more quotes. Backslashes escape only
  /// between double quotes.
  void skip_string(char quote) {
    const bool has_lines = count_quotes(quote) >= 3;
    step(has_lines ? 3 : 1);
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && quote == '"') {
        step(2);
      } else if (c == '\n' && !has_lines) {
        return;
      } else if (c != quote) {
        step(1);
      } else if (!has_lines) {
        return step(1);
      } else {
        const size_t quotes = count_quotes(quote);
        step(std::min<size_t>(quotes, 5));
        if (quotes >= 3) return;
      }
    }
  }

  void check_plain(char c) {
    if (c == '.' && ++dots_ > kMaxDots) refuse("more names than any key has: keys read like train.steps");
    if (c == '[' && is_line_start_) check_head();
    if (c != ' ' && c != '\t') is_line_start_ = false;
  }

  void check_head() {
    size_t ahead = peek(1) == '[' ? 2 : 1;
    while (peek(ahead) == ' ' || peek(ahead) == '\t') ++ahead;
    const char first = peek(ahead);
    if (!is_bare(first) && first != '"' && first != '\'') refuse("a section has a name: [train]");
  }

  [[noreturn]] void refuse(std::string_view problem) const {
    throw UsageError(fmt::format("{}:{}:{}: {}", name_, line_, column_, problem));
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t line_ = 1, column_ = 1;
  int dots_ = 0;  ///< dots on this line, outside quotes and comments
  bool is_line_start_ = true;
};

}  // namespace

void scan_toml(std::string_view text, const std::string& name) { Scanner(text, name).run(); }

}  // namespace trireme
