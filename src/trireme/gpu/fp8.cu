// Scales of 8-bit matrices: noting the largest value, and what follows from it.
#include <algorithm>

#include "trireme/gpu/fp8.h"
#include "trireme/gpu/fp8_largest.cuh"
#include "trireme/gpu/kernels/launch.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = kFp8Threads;

__global__ void __launch_bounds__(kThreads)
    measure_kernel(const uint16_t* __restrict__ x, int64_t count, Fp8Scale* state) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t num_vectors = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? count / 8 : 0;
  uint32_t pairs = 0;
#pragma unroll 4
  for (int64_t i = first; i < num_vectors; i += stride) {
    const uint4 v = reinterpret_cast<const uint4*>(x)[i];
    pairs = larger_of_pairs(larger_of_pairs(larger_of_pairs(larger_of_pairs(pairs, v.x), v.y), v.z), v.w);
  }
  for (int64_t i = num_vectors * 8 + first; i < count; i += stride) pairs = larger_of_pairs(pairs, x[i]);
  note_largest(pairs, state);
}

__global__ void update_scales_kernel(Fp8Scale* scales, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  Fp8Scale& s = scales[i];
  const float amax = __uint_as_float(s.amax);
  s.amax = 0;
  if (!isfinite(amax)) return;
  s.history[s.position] = amax;
  s.position = (s.position + 1) % Fp8Scale::kHistory;
  float most = 0;
  for (const float value : s.history) most = fmaxf(most, value);
  if (most == 0) return;
  // The largest power of two with most · 2^power <= largest. Both exponents are exact, so no rounding decides.
  int power = ilogbf(s.largest) - ilogbf(most);
  if (scalbnf(most, power) > s.largest) --power;
  power = max(-126, min(126, power));
  s.scale = scalbnf(1, power);
  s.inverse = scalbnf(1, -power);
}

}  // namespace

void measure(const void* x, int64_t count, Fp8Scale* scale, Stream stream) {
  if (count == 0) return;
  const auto grid = static_cast<unsigned>(std::min(ceil_div(count, 8 * 4 * kThreads), kMultiprocessors * 8));
  measure_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint16_t*>(x), count, scale);
  check_launch("measure");
}

void update_scales(Fp8Scale* scales, int64_t count, Stream stream) {
  if (count == 0) return;
  update_scales_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0, stream>>>(scales, count);
  check_launch("update_scales");
}

}  // namespace trireme::gpu
