// Loops over flat arrays that several methods share.
#pragma once

#include <cstddef>
#include <span>

namespace trireme {

/// into += from.
void add_into(std::span<float> into, std::span<const float> from);
void scale_by(std::span<float> values, float factor);
/// No NaN and no infinity.
bool all_finite(std::span<const float> values);
/// Sets what is not finite to 0.
void clear_not_finite(std::span<float> values);
/// Σ a b in double, in 16 lanes that meet in a tree: the same bits on every processor.
double dot_product(std::span<const float> a, std::span<const float> b);

}  // namespace trireme
