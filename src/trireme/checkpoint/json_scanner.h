// Reads JSON from a text front to back, without building a tree: memory is what the caller keeps.
//
// For files from outside: nlohmann's parser goes over the whole text first, so that it is strict JSON and at most 64
// levels deep; every refusal has its byte. Threads: one.
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
  /// Throws JsonError unless the text is one value.
  explicit JsonScanner(std::string_view text);

  /// Calls on_key(std::string key) for each key; it must take the value.
  template <typename OnKey>
  void object(OnKey&& on_key) {
    for (expect('{'); !take('}'); take(',')) {
      std::string name = text();
      expect(':');
      on_key(std::move(name));
    }
  }
  /// Calls on_item() for each item; it must take the value.
  template <typename OnItem>
  void array(OnItem&& on_item) {
    for (expect('['); !take(']'); take(',')) on_item();
  }
  std::string text();
  /// A whole number that is not negative and fits.
  uint64_t number();
  /// An object as it is written.
  std::string_view raw_object();
  /// Nothing but white space may follow.
  void end();

  /// Of the value that comes next.
  size_t position();
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  char peek();
  bool take(char wanted);
  void expect(char wanted);
  std::string_view quoted();

  std::string_view text_;
  size_t at_ = 0;
};

/// With quotes and escapes. Throws JsonError where it is not UTF-8.
std::string json_text(std::string_view text);

}  // namespace trireme
