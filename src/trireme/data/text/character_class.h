// What kind a character is, as GPT-2's cutting of words asks: letter, number, white space or other.
//
// Letters and numbers are the general categories L* and N* of Unicode 14, white space is the property White_Space, for
// all of Unicode. Characters that newer versions added count as other.
#pragma once

#include <cstdint>

#include "trireme/base/text.h"

namespace trireme {

enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

CharacterClass class_of(uint32_t code_point);

}  // namespace trireme
