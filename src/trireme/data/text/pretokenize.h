// Cuts text into the words within which byte pairs are merged, as the regular expression of GPT-2 does:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// So a space goes with the word after it, and of several only the last one does. The words are the text: nothing is
// left out. Bytes that are not UTF-8 count as other characters, one each.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

/// Where the word that starts at `at` < text.size() ends. Threads: all. Time grows with the length of the word.
size_t word_end(std::string_view text, size_t at);

}  // namespace trireme
