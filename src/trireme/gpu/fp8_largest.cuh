// Noting the largest |value| of a matrix of bfloat16 while it is read.
#pragma once

#include <cuda_runtime.h>

#include "trireme/gpu/fp8.h"

namespace trireme::gpu {

inline constexpr int kFp8Threads = 256;  ///< of a block

/// The larger of two pairs of |bfloat16|, as bits: for these the order of the bits is that of the values, NaN largest.
__device__ inline uint32_t larger_of_pairs(uint32_t most, uint32_t pair) { return __vmaxu2(most, pair & 0x7FFF7FFFu); }

__device__ inline void note_largest(uint32_t pairs, Fp8Scale* scale) {
  uint32_t most = max(pairs & 0xFFFFu, pairs >> 16);
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  __shared__ uint32_t of_warps[kFp8Threads / 32];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const uint32_t other : of_warps) most = max(most, other);
    atomicMax(&scale->amax, most << 16);
  }
}

}  // namespace trireme::gpu
