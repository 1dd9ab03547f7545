// Compression kernels for x86-64 processors with AVX-512 F, BW, DQ and VL.
#include "trireme/compress/formats/kernels.h"

#if defined(__x86_64__)

// GCC 12 takes the undefined vectors inside its own intrinsics for mistakes of ours (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#define TRIREME_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace trireme::compress_kernels {
namespace {

struct Isa : VectorsOf<64> {
  TRIREME_TARGET __attribute__((always_inline)) static inline Wide multiply_even(Bits a, Bits b) {
    return (Wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
  }
};

}  // namespace
}  // namespace trireme::compress_kernels

#include "trireme/compress/formats/kernels_blocks.inc"
#include "trireme/compress/formats/kernels_low_rank.inc"
#include "trireme/compress/formats/kernels_table.inc"

namespace trireme::compress_kernels {

const Kernels* avx512() {
  static constexpr Kernels kKernels = make_kernels("avx512");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
             ? &kKernels
             : nullptr;
}

}  // namespace trireme::compress_kernels

#endif
