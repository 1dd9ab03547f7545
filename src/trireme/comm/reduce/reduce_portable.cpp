// Reduction kernels for any processor: vectors of 16 bytes, and halves converted in integer arithmetic.
#include <cstring>

#include "trireme/comm/reduce/reduce_convert.h"
#include "trireme/comm/reduce/reduce_kernels.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define TRIREME_TARGET

namespace trireme::kernels {
namespace {

struct Isa {
  static constexpr size_t kBytes = 16;
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));
  typedef float Floats __attribute__((vector_size(kBytes)));

  static Bits load_some(const std::byte* from, size_t num_bytes) {
    Bits bits{};
    std::memcpy(&bits, from, num_bytes);
    return bits;
  }
  static void store_some(std::byte* to, Bits bits, size_t num_bytes) { std::memcpy(to, &bits, num_bytes); }

#if defined(__SSE2__)
  static void stream(std::byte* to, Bits bits) { _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)bits); }
  static void fence() { _mm_sfence(); }
#else
  static void stream(std::byte* to, Bits bits) { std::memcpy(to, &bits, kBytes); }
  static void fence() {}
#endif

  __attribute__((noinline)) static void widen(Bits bits, Floats& first, Floats& second) {
    Half halves[8];
    std::memcpy(halves, &bits, kBytes);
    for (int i = 0; i < 4; ++i) {
      first[i] = float_of(halves[i]);
      second[i] = float_of(halves[i + 4]);
    }
  }
  __attribute__((noinline)) static Bits narrow(Floats first, Floats second) {
    Half halves[8];
    for (int i = 0; i < 4; ++i) {
      halves[i] = half_of(first[i]);
      halves[i + 4] = half_of(second[i]);
    }
    Bits bits;
    std::memcpy(&bits, halves, kBytes);
    return bits;
  }
};

}  // namespace
}  // namespace trireme::kernels

#include "trireme/comm/reduce/reduce_lanes.inc"

namespace trireme::kernels {

const Kernels* portable() {
  static constexpr Kernels kKernels = make_kernels("portable");
  return &kKernels;
}

}  // namespace trireme::kernels
