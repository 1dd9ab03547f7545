// Loops over flat arrays that several methods share.
#pragma once

#include <cstddef>
#include <span>

namespace trireme {

/// into += from.
void add_into(std::span<float> into, std::span<const float> from);
void scale_by(std::span<float> values, float factor);
/// out = a x + b y.
void weigh(float a, std::span<const float> x, float b, std::span<const float> y, std::span<float> out);
/// Cuts off what is further from 0 than `limit`.
void clamp_to(std::span<float> values, float limit);
/// No NaN and no infinity.
bool all_finite(std::span<const float> values);
/// Sets what is not finite to 0.
void clear_not_finite(std::span<float> values);
/// Elements whose products dot_product() sums at a time.
inline constexpr size_t kDotBlock = 4096;
/// Σ a b in double: of each block in 16 lanes that meet in a tree; then blocks in their order. The same bits on every
/// processor, and on a GPU.
double dot_product(std::span<const float> a, std::span<const float> b);

}  // namespace trireme
