// Kernels for AVX-512 F: vectors of 16 floats, tiles of 14 × 32 in the 32 registers.
#include <utility>

#include "trireme/models/kernels/kernels.h"

#if defined(__x86_64__)

// GCC 12 warns about undefined vectors inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

// No standard-library calls below: its templates would be compiled for these instructions, and the linker could use
// that copy in other files.
#pragma GCC push_options
#pragma GCC target("avx512f")

namespace trireme::model_kernels {
namespace {

struct Isa {
  using V = __m512;
  using Mask = __mmask16;
  static constexpr int64_t kWidth = 16;
  static constexpr int kRows = 14;

  /// Selects the first `count` lanes; none if count is negative.
  static Mask mask(int64_t count) {
    return count >= kWidth ? Mask(0xffff) : count <= 0 ? Mask(0) : Mask((1u << count) - 1);
  }
  static V all(float x) { return _mm512_set1_ps(x); }
  static V load(const float* from) { return _mm512_loadu_ps(from); }
  static V load(const float* from, Mask some) { return _mm512_maskz_loadu_ps(some, from); }
  static void store(float* to, V v) { _mm512_storeu_ps(to, v); }
  static void store(float* to, V v, Mask some) { _mm512_mask_storeu_ps(to, some, v); }
  static V only(V v, Mask some) { return _mm512_maskz_mov_ps(some, v); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  /// For a NaN and a number, these return the second operand.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  static V round(V v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// v · 2ⁿ for integers n from −126 to 127.
  static V times_power_of_2(V v, V n) {
    const __m512i power = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_mul_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(power, 23)));
  }

  /// to[k · to_row + i] = from[i · from_row + k] for k < columns; zeros for i ≥ rows. Up to 16 × 16.
  static void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
    const Mask some = mask(columns);
    V a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) a[i] = i < rows ? load(from + i * from_row, some) : _mm512_setzero_ps();
      // Interleave pairs, then groups of four within each 128 bits; then permute the 128-bit quarters.
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      const auto pair = [&](int j) __attribute__((always_inline)) { return _mm512_castps_pd(b[i + j]); };
      a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(0), pair(2)));
      a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(0), pair(2)));
      a[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(1), pair(3)));
      a[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(1), pair(3)));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const V low01 = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
              low23 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
      const V high01 = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd),
              high23 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
      b[i] = _mm512_shuffle_f32x4(low01, low23, 0x88);
      b[i + 8] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
      b[i + 4] = _mm512_shuffle_f32x4(high01, high23, 0x88);
      b[i + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
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
const Kernels* avx512() { return __builtin_cpu_supports("avx512f") ? &kTable : nullptr; }
}  // namespace trireme::model_kernels

#endif
