// Enums whose values have names: one list for each, next to the enum and in the order of its values.
//
//   enum class Color : uint8_t { kRed, kGreen };
//   constexpr auto names_of(Color) { return std::to_array<std::string_view>({"red", "green"}); }
//
// With it there are name_of(Color::kRed), all_names<Color>() and named<Color>("red").
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace trireme {

template <typename Enum>
concept Named = std::is_enum_v<Enum> && requires {
  names_of(Enum{});
};

/// In the order of the values.
template <Named Enum>
std::span<const std::string_view> all_names() {
  static const auto all = names_of(Enum{});
  return all;
}

template <Named Enum>
std::string_view name_of(Enum value) {
  return all_names<Enum>()[static_cast<size_t>(value)];
}

/// The other way round; unset where no value has this name.
template <Named Enum>
std::optional<Enum> named(std::string_view name) {
  const auto all = all_names<Enum>();
  const auto found = std::find(all.begin(), all.end(), name);
  return found == all.end() ? std::nullopt : std::optional(static_cast<Enum>(found - all.begin()));
}

}  // namespace trireme
