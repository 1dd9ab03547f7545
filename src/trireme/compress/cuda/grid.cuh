// Loops over flat arrays by as many groups of threads as fill a GPU.
#pragma once

#include "trireme/gpu/kernels/launch.cuh"

namespace trireme::gpu {

inline constexpr int kThreads = 256;  // of a group

inline unsigned groups_over(size_t count) {
  constexpr int64_t kMost = 8 * kMultiprocessors;
  return static_cast<unsigned>(min(kMost, ceil_div(static_cast<int64_t>(count), kThreads)));
}

__device__ inline size_t first_index() { return static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ inline size_t stride() { return static_cast<size_t>(gridDim.x) * kThreads; }

}  // namespace trireme::gpu
