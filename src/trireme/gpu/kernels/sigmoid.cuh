// 1 / (1 + e^−v), as precise as the type of the elements asks for.
#pragma once

namespace trireme::gpu {

/// For 2-byte types with the fast exponential and division, whose errors (some 2^−21) vanish in the rounding.
template <typename T>
__device__ inline float sigmoid(float v) {
  if constexpr (sizeof(T) == 4) {
    return 1 / (1 + expf(-v));
  } else {
    return __fdividef(1, 1 + __expf(-v));
  }
}

}  // namespace trireme::gpu
