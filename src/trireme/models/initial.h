// Initial weights as a function of (seed, parameter name, element), independent of libtorch's generator and of which
// rank holds which part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Distribution of a parameter's initial values.
struct Initial {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double value = 0;  ///< the constant, the standard deviation around 0, or the bound on both sides of 0

  static Initial constant(double value) { return {Kind::kConstant, value}; }
  static Initial normal(double deviation) { return {Kind::kNormal, deviation}; }
  static Initial uniform(double bound) { return {Kind::kUniform, bound}; }
  bool operator==(const Initial&) const = default;
};

/// Chosen by name and shape: biases 0, vectors 1 (the scale of a norm), matrices normal with standard deviation 0.02,
/// convolutions [out, in, height, width] normal with the standard deviation that preserves the variance of gradients
/// through ReLU (He et al., 2015).
Initial default_initial(std::string_view parameter, std::span<const int64_t> shape);

/// Fills `out` with elements first, first + 1, … of a parameter.
void fill_initial(const Initial& initial, uint64_t seed, std::string_view parameter, std::span<float> out,
                  uint64_t first = 0);

}  // namespace trireme
