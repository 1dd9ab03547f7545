// Compression kernels for x86-64 processors with AVX2 (2013 and later).
#include "trireme/compress/formats/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define TRIREME_TARGET __attribute__((target("avx2")))

namespace trireme::compress_kernels {
namespace {

struct Isa : VectorsOf<32> {
  TRIREME_TARGET __attribute__((always_inline)) static inline Wide multiply_even(Bits a, Bits b) {
    return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
  }
};

}  // namespace
}  // namespace trireme::compress_kernels

#include "trireme/compress/formats/kernels_blocks.inc"
#include "trireme/compress/formats/kernels_low_rank.inc"
#include "trireme/compress/formats/kernels_table.inc"

namespace trireme::compress_kernels {

const Kernels* avx2() {
  static constexpr Kernels kKernels = make_kernels("avx2");
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace trireme::compress_kernels

#endif
