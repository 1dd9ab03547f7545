// Loops over flat arrays on a GPU.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// into += from.
void add_into(float* into, const float* from, size_t count, Stream stream);
void scale_by(float* values, size_t count, float factor, Stream stream);
/// out = a x + b y.
void weigh(float a, const float* x, float b, const float* y, float* out, size_t count, Stream stream);
/// Cuts off what is further from 0 than `limit`.
void clamp_to(float* values, size_t count, float limit, Stream stream);
/// Sets what is not finite to 0, and then `found`, unless null, to 1.
void clear_not_finite(float* values, size_t count, uint32_t* found, Stream stream);

/// Σ a b in double of each block of kDotBlock elements, the host's bits (arithmetic.h).
void dot_blocks(const float* a, const float* b, size_t count, double* sums, Stream stream);

}  // namespace trireme::gpu
