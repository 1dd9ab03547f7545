// Compile-time check of a table with one row per value of an enum.
//
//   struct Row { Color color; int weight; };
//   constexpr Row kRows[] = {{Color::kRed, 1}, {Color::kGreen, 2}};
//   static_assert(has_row_of_each(kRows, &Row::color));
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

/// Whether a value of an enum, not of one in an unnamed namespace, has a name: compilers print others as a cast,
/// "(Color)7".
template <auto kValue>
consteval bool is_enumerator() {
  constexpr std::string_view kBefore = "kValue = ", kFunction = __PRETTY_FUNCTION__;
  return kFunction[kFunction.rfind(kBefore) + kBefore.size()] != '(';
}

/// Whether row i is the one of the enum's value i, and no value is left out.
template <typename Row, typename Enum, size_t kCount>
consteval bool has_row_of_each(const Row (&rows)[kCount], Enum Row::*value) {
  for (size_t i = 0; i < kCount; ++i) {
    if (rows[i].*value != static_cast<Enum>(i)) return false;
  }
  return !is_enumerator<static_cast<Enum>(kCount)>();
}

}  // namespace trireme
