// What kind a character is, as GPT-2's cutting of words asks: letter, number, white space or other.
//
// Letters and numbers are the general categories L* and N* of Unicode 14, white space is the property White_Space, for
// all of Unicode. Characters that newer versions added count as other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

CharacterClass class_of(uint32_t code_point);

struct Character {
  uint32_t code_point = 0;
  size_t num_bytes = 0;
  bool is_valid = false;  ///< false: a byte that is not UTF-8, on its own
};

/// The character that starts at `at` < text.size(). Overlong forms, surrogates and cut ones are not valid.
Character utf8_at(std::string_view text, size_t at);

}  // namespace trireme
