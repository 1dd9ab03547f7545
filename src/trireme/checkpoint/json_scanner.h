// Reads JSON from a text front to back, without building a tree: memory is what the caller keeps.
//
// For files from outside: strict (RFC 8259, valid UTF-8), at most 64 levels deep, and every refusal has its byte.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {

/// What is wrong, and at which byte of the text.
class JsonError : public Error {
 public:
  JsonError(size_t byte, const std::string& problem) : Error(problem), byte_(byte) {}
  size_t byte() const { return byte_; }

 private:
  size_t byte_;
};

/// Each function takes the next value, and throws JsonError where it is of another kind.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  /// Calls on_key(std::string key) for each key; it must take the value.
  template <typename OnKey>
  void object(OnKey&& on_key) {
    for (open('{'); !close('}');) on_key(key());
  }
  /// Calls on_item() for each item; it must take the value.
  template <typename OnItem>
  void array(OnItem&& on_item) {
    for (open('['); !close(']');) on_item();
  }
  std::string text();
  /// A whole number that is not negative and fits.
  uint64_t number();
  /// Any value, checked, as it is written.
  std::string_view raw();
  /// Nothing but white space may follow.
  void end();

  /// Of the value that comes next.
  size_t position();
  [[noreturn]] void fail(const std::string& problem);

 private:
  void skip_space();
  char peek();
  void expect(char wanted);
  void open(char bracket);
  bool close(char bracket);  // else steps over the comma, if one is due
  std::string key();
  void scan_text(std::string* out);
  void scan_escape(std::string* out);
  uint32_t scan_hex();
  void scan_utf8(std::string* out);
  void scan_number();
  void scan_word(std::string_view word);
  void skip(int depth);

  std::string_view text_;
  size_t at_ = 0;
  bool fresh_ = false;  // just behind an opening bracket
};

/// With quotes; control characters and quotes escaped, all else as it is. Throws JsonError where it is no UTF-8.
std::string json_text(std::string_view text);

}  // namespace trireme
