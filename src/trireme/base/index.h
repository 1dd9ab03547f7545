/// Turns the signed numbers that the code counts with into indices of containers.
#pragma once

#include <concepts>
#include <cstddef>

namespace trireme {

constexpr std::size_t at(std::integral auto n) { return static_cast<std::size_t>(n); }

}  // namespace trireme
