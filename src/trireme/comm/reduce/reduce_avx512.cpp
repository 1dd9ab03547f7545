// Reduction kernels for x86-64 processors with AVX-512 F and BW, where masks also make short ends cheap.
#include "trireme/comm/reduce/reduce_kernels.h"

#if defined(__x86_64__)

// GCC 12 takes the undefined vectors inside its own intrinsics for mistakes of ours (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#define TRIREME_TARGET __attribute__((target("avx512f,avx512bw")))
#define TRIREME_ISA TRIREME_TARGET __attribute__((always_inline)) static inline

namespace trireme::kernels {
namespace {

struct Isa {
  static constexpr size_t kBytes = 64;
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));
  typedef float Floats __attribute__((vector_size(kBytes)));

  TRIREME_ISA __mmask64 mask(size_t num_bytes) { return ~__mmask64{0} >> (kBytes - num_bytes); }
  TRIREME_ISA Bits load_some(const std::byte* from, size_t num_bytes) {
    return (Bits)_mm512_maskz_loadu_epi8(mask(num_bytes), from);
  }
  TRIREME_ISA void store_some(std::byte* to, Bits bits, size_t num_bytes) {
    _mm512_mask_storeu_epi8(to, mask(num_bytes), (__m512i)bits);
  }

  TRIREME_ISA void stream(std::byte* to, Bits bits) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)bits);
  }
  static void fence() { _mm_sfence(); }

  TRIREME_ISA void widen(Bits bits, Floats& first, Floats& second) {
    first = (Floats)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)bits));
    second = (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)bits, 1));
  }
  TRIREME_ISA Bits narrow(Floats first, Floats second) {
    const __m256i low = _mm512_cvtps_ph((__m512)first, _MM_FROUND_TO_NEAREST_INT);
    const __m256i high = _mm512_cvtps_ph((__m512)second, _MM_FROUND_TO_NEAREST_INT);
    return (Bits)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

}  // namespace
}  // namespace trireme::kernels

#include "trireme/comm/reduce/reduce_lanes.inc"

namespace trireme::kernels {

const Kernels* avx512() {
  static constexpr Kernels kKernels = make_kernels("avx512");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? &kKernels : nullptr;
}

}  // namespace trireme::kernels

#endif
