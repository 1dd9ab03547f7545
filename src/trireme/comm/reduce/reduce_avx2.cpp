// Reduction kernels for x86-64 processors with AVX2 and F16C (2013 and later).
#include "trireme/comm/reduce/reduce_kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

#define TRIREME_TARGET __attribute__((target("avx2,f16c")))
#define TRIREME_ISA TRIREME_TARGET __attribute__((always_inline)) static inline

namespace trireme::kernels {
namespace {

struct Isa {
  static constexpr size_t kBytes = 32;
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));
  typedef float Floats __attribute__((vector_size(kBytes)));

  TRIREME_ISA Bits load_some(const std::byte* from, size_t num_bytes) {
    Bits bits{};
    std::memcpy(&bits, from, num_bytes);
    return bits;
  }
  TRIREME_ISA void store_some(std::byte* to, Bits bits, size_t num_bytes) { std::memcpy(to, &bits, num_bytes); }

  TRIREME_ISA void stream(std::byte* to, Bits bits) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)bits);
  }
  static void fence() { _mm_sfence(); }

  TRIREME_ISA void widen(Bits bits, Floats& first, Floats& second) {
    first = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)bits));
    second = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)bits, 1));
  }
  TRIREME_ISA Bits narrow(Floats first, Floats second) {
    return (Bits)_mm256_set_m128i(_mm256_cvtps_ph((__m256)second, _MM_FROUND_TO_NEAREST_INT),
                                  _mm256_cvtps_ph((__m256)first, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace
}  // namespace trireme::kernels

#include "trireme/comm/reduce/reduce_lanes.inc"

namespace trireme::kernels {

const Kernels* avx2() {
  static constexpr Kernels kKernels = make_kernels("avx2");
  unsigned a, b, c, d;  // clang's __builtin_cpu_supports does not know F16C
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return __builtin_cpu_supports("avx2") && has_f16c ? &kKernels : nullptr;
}

}  // namespace trireme::kernels

#endif
