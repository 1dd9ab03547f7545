// GELU with the approximation by tanh, which is x · sigmoid(2u) with u = √(2/π) · (x + 0.044715 x³).
#pragma once

#include "trireme/gpu/kernels/sigmoid.cuh"

namespace trireme::gpu {

inline constexpr float kGeluTwice = 1.5957691216057308f;            // 2 √(2/π)
inline constexpr float kGeluCubic = 0.07135481282607442f;           // 2 √(2/π) · 0.044715
inline constexpr float kGeluCubicSlope = 3 * 0.07135481282607442f;  // of its derivative

/// T is the type of the elements: it says how precise the sigmoid must be.
template <typename T>
__device__ inline float gelu_of(float x) {
  return x * sigmoid<T>(x * fmaf(kGeluCubic, x * x, kGeluTwice));
}

/// The gradient of x, given that of gelu(x).
template <typename T>
__device__ inline float gelu_gradient_of(float x, float dy) {
  const float square = x * x;
  const float s = sigmoid<T>(x * fmaf(kGeluCubic, square, kGeluTwice));
  const float slope = x * fmaf(kGeluCubicSlope, square, kGeluTwice);  // x · d(2u)/dx
  return dy * fmaf(s * (1 - s), slope, s);
}

}  // namespace trireme::gpu
