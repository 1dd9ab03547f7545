// Loops over flat arrays on a GPU.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// into += from.
void add_into(float* into, const float* from, size_t count, Stream stream);
void scale_by(float* values, size_t count, float factor, Stream stream);

inline constexpr int kDotSums = 264;
/// Σ a b in double, as kDotSums sums over parts, the same bits on every GPU.
void dot_product(const float* a, const float* b, size_t count, double* sums, Stream stream);

}  // namespace trireme::gpu
