// Random choices on a GPU, of the elements that select.h chooses.
#pragma once

#include "trireme/compress/select.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// chosen = the draw's elements of `from`, times the size of each one's part where `scaled`, and 0 in their places.
/// Where `not_finite` is not 0, the first becomes a NaN.
void take_at_random(const RandomDraw& draw, float* from, bool scaled, const uint32_t* not_finite, float* chosen,
                    Stream stream);
/// Back to their places.
void put_at_random(const RandomDraw& draw, const float* chosen, float* out, Stream stream);

}  // namespace trireme::gpu
