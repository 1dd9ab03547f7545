// Sums over a warp and over a block, in a fixed order, and sums of partial rows.
#pragma once

#include <cstdint>

#include "trireme/gpu/types.h"

namespace trireme::gpu {

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

/// Sums over a team of threads: a warp, or the whole block of kThreads. Every thread gets the same sums. Two places
/// in shared memory are used in turns, so that one barrier a sum is enough.
template <int kThreads>
struct TeamSum {
  static constexpr int kWarps = kThreads / 32;
  struct Shared {
    float2 values[2][kWarps];
  };
  Shared* shared;
  int turn = 0;

  __device__ float2 operator()(float2 value) {
    value = {warp_sum(value.x), warp_sum(value.y)};
    if constexpr (kWarps > 1) {
      float2* place = shared->values[turn];
      turn ^= 1;
      if (threadIdx.x % 32 == 0) place[threadIdx.x / 32] = value;
      __syncthreads();
      value = {0, 0};
#pragma unroll
      for (int i = 0; i < kWarps; ++i) value.x += place[i].x, value.y += place[i].y;
    }
    return value;
  }
  __device__ float operator()(float value) {
    value = warp_sum(value);
    if constexpr (kWarps > 1) {
      float2* place = shared->values[turn];
      turn ^= 1;
      if (threadIdx.x % 32 == 0) place[threadIdx.x / 32].x = value;
      __syncthreads();
      value = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) value += place[i].x;
    }
    return value;
  }
};

/// first[j] = Σ over `count` of partials[i, j] for j < num_first, second[j − num_first] beyond; rows of `width`.
void sum_partials(const float* partials, int64_t count, int64_t width, float* first, int64_t num_first, float* second,
                  Stream stream);

}  // namespace trireme::gpu
