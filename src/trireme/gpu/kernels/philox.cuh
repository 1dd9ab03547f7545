// base/philox.h on a GPU, bit for bit.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace trireme::gpu {

__device__ __forceinline__ uint4 philox4x32(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high_a = __umulhi(0xd2511f53u, counter.x), low_a = 0xd2511f53u * counter.x;
    const uint32_t high_b = __umulhi(0xcd9e8d57u, counter.z), low_b = 0xcd9e8d57u * counter.z;
    counter = {high_b ^ counter.y ^ key.x, low_b, high_a ^ counter.w ^ key.y, low_a};
    key.x += 0x9e3779b9u;
    key.y += 0xbb67ae85u;
  }
  return counter;
}

/// A counter whose lower half is `index`.
__device__ __forceinline__ uint4 philox_counter(uint64_t index, uint32_t third, uint32_t fourth) {
  return {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), third, fourth};
}

}  // namespace trireme::gpu
