#include "trireme/data/text/pretokenize.h"

#include "trireme/data/text/character_class.h"

namespace trireme {
namespace {

struct Seen {
  CharacterClass kind;
  size_t end;
};

Seen look(std::string_view text, size_t at) {
  const Character c = utf8_at(text, at);
  return {c.is_valid ? class_of(c.code_point) : CharacterClass::kOther, at + c.num_bytes};
}

/// 's 't 're 've 'm 'll 'd: their length, or 0.
size_t contraction(std::string_view text, size_t at) {
  if (text[at] != '\'' || at + 1 >= text.size()) return 0;
  const char next = text[at + 1];
  if (next == 's' || next == 't' || next == 'm' || next == 'd') return 2;
  const std::string_view two = text.substr(at + 1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

size_t run_end(std::string_view text, size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Seen seen = look(text, at);
    if (seen.kind != kind) break;
    at = seen.end;
  }
  return at;
}

}  // namespace

size_t word_end(std::string_view text, size_t at) {
  if (const size_t length = contraction(text, at)) return at + length;
  const Seen first = look(text, at);
  if (first.kind != CharacterClass::kSpace) return run_end(text, first.end, first.kind);
  if (text[at] == ' ' && first.end < text.size()) {
    const Seen second = look(text, first.end);
    if (second.kind != CharacterClass::kSpace) return run_end(text, second.end, second.kind);
  }
  // White space: all of it at the end of the text, else all but the last, which may belong to the next word.
  size_t end = first.end, last = at;
  while (end < text.size()) {
    const Seen seen = look(text, end);
    if (seen.kind != CharacterClass::kSpace) return last > at ? last : end;
    last = end;
    end = seen.end;
  }
  return end;
}

}  // namespace trireme
