// Kernels for AVX2 and FMA: vectors of 8 floats, tiles of 6 × 16 in the 16 registers.
#include <utility>

#include "trireme/models/kernels/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

// No standard-library calls below: its templates would be compiled for these instructions, and the linker could use
// that copy in other files.
#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace trireme::model_kernels {
namespace {

struct Isa {
  using V = __m256;
  using Mask = __m256i;
  static constexpr int64_t kWidth = 8;
  static constexpr int kRows = 6;

  /// Selects the first `count` lanes; none if count is negative.
  static Mask mask(int64_t count) {
    const int lanes = count >= kWidth ? 8 : count <= 0 ? 0 : static_cast<int>(count);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V all(float x) { return _mm256_set1_ps(x); }
  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static V load(const float* from, Mask some) { return _mm256_maskload_ps(from, some); }
  static void store(float* to, V v) { _mm256_storeu_ps(to, v); }
  static void store(float* to, V v, Mask some) { _mm256_maskstore_ps(to, some, v); }
  static V only(V v, Mask some) { return _mm256_and_ps(v, _mm256_castsi256_ps(some)); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  /// For a NaN and a number, these return the second operand.
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  static V round(V v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// v · 2ⁿ for integers n from −126 to 127.
  static V times_power_of_2(V v, V n) {
    const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
  }

  /// to[k · to_row + i] = from[i · from_row + k] for k < columns; zeros for i ≥ rows. Up to 8 × 8.
  static void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
    const Mask some = mask(columns);
    V a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = i < rows ? load(from + i * from_row, some) : _mm256_setzero_ps();
      // Interleave pairs, then groups of four within each 128 bits; then swap the halves.
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
      b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
      a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
      a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
      a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      b[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
      b[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      if (k < columns) store(to + k * to_row, b[k]);
    }
  }
};

// Order matters: each uses the ones before it.
// clang-format off
#include "trireme/models/kernels/gemm.inc"
#include "trireme/models/kernels/pointwise.inc"
#include "trireme/models/kernels/attention.inc"
#include "trireme/models/kernels/table.inc"
// clang-format on

}  // namespace
}  // namespace trireme::model_kernels

#pragma GCC pop_options

namespace trireme::model_kernels {
const Kernels* avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kTable : nullptr; }
}  // namespace trireme::model_kernels

#endif
