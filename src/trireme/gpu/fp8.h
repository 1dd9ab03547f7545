// 8-bit copies of matrices, with one scale a matrix that follows the largest values of the last steps.
//
// Products in 8 bits want both operands with rows along the summed dimension, so one pass writes a matrix and its
// transpose. Scales are powers of two: the only error is that of rounding to 3 (e4m3) or 2 (e5m2) bits of fraction.
// Everything that changes lies in device memory, so that a captured graph can be run again. Threads: all, on one stream
// a scale. Nothing blocks. Errors: UsageError for sizes, those of the launch as Error.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

enum class Fp8 : uint8_t {
  kE4M3,  ///< for values and weights: up to 448
  kE5M2,  ///< for gradients: up to 57344
};

constexpr float largest_of(Fp8 type) { return type == Fp8::kE4M3 ? 448.0f : 57344.0f; }

/// What sizes and addresses of matrices must be multiples of.
inline constexpr int64_t kFp8Multiple = 16;

/// Of one matrix, in device memory. At first as below, `largest` set by its owner.
struct Fp8Scale {
  static constexpr int kHistory = 16;

  alignas(16) float inverse = 1;  ///< what a product multiplies by; cuBLASLt wants it at such an address
  float scale = 1;                ///< values times this are rounded to 8 bits
  float largest = 448;            ///< that the type can hold
  uint32_t amax = 0;              ///< bits of the largest |value| that was quantised since the last update
  int32_t position = 0;           ///< of the next place in history
  float history[kHistory] = {};
};

/// out[rows, cols] and transposed[cols, rows] (either may be null) are x, of bfloat16, times scale->scale, rounded to
/// nearest even. Values beyond the type's largest become it; infinities and NaN become NaN. Also notes the largest.
void quantise(const void* x, int64_t rows, int64_t cols, Fp8 type, Fp8Scale* scale, void* out, void* transposed,
              Stream stream);

// The same in one pass with what comes before it. Bits are those of the passes one by one: what is quantised is rounded
// to bfloat16 first.
/// gelu(x), to e4m3.
void quantise_gelu(const void* x, int64_t rows, int64_t cols, Fp8Scale* scale, void* out, void* transposed,
                   Stream stream);
/// (x − mean) · rstd · weight + shift with one mean and rstd a row, to e4m3: layer_norm() gave them.
struct Fp8Norm {
  const float *weight = nullptr, *shift = nullptr, *mean = nullptr, *rstd = nullptr;
};
void quantise_layer_norm(const void* x, const Fp8Norm& norm, int64_t rows, int64_t cols, Fp8Scale* scale, void* out,
                         void* transposed, Stream stream);
/// A gradient dy, to e5m2; where before_gelu is not null, it is that of gelu's result, and dy · gelu'(before_gelu) is
/// meant. sums[j] = Σ over rows of the same, the gradient of a bias, in a fixed order; null: not wanted.
void quantise_gradient(const void* dy, const void* before_gelu, int64_t rows, int64_t cols, Fp8Scale* scale, void* out,
                       void* transposed, float* sums, void* scratch, Stream stream);
size_t quantise_gradient_scratch(int64_t rows, int64_t cols);

/// Only notes the largest |value|: quantise() of a matrix whose size nobody knows yet comes after this and an update.
void measure(const void* x, int64_t count, Fp8Scale* scale, Stream stream);

/// Moves what was noted into each scale's history and sets the scale so that the history's largest fits. Where what was
/// noted is not finite, or nothing but zeros came, the scale stays.
void update_scales(Fp8Scale* scales, int64_t count, Stream stream);

}  // namespace trireme::gpu
