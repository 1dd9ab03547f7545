// Dot products in the host's order: dot_product() of arithmetic.h.
#pragma once

#include <cuda_runtime.h>

namespace trireme::gpu {

inline constexpr unsigned kDotLanes = 16;  // threads that sum a block

/// Σ a b of one block, by sixteen neighbouring threads of a warp whose others call it as well or are through. The first
/// of them has the sum.
__device__ inline double dot_of_block(const float* a, const float* b, size_t count) {
  const unsigned lane = threadIdx.x % kDotLanes;
  double sum = 0;
  for (size_t i = lane; i < count; i += kDotLanes) sum += static_cast<double>(a[i]) * b[i];
  const unsigned mates = 0xffffu << (threadIdx.x / kDotLanes % 2 * kDotLanes);
  for (unsigned half = kDotLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(mates, sum, half, kDotLanes);
  return sum;
}

}  // namespace trireme::gpu
