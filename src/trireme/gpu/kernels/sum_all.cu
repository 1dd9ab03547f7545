// The sum of all values, by one block: no scratch memory, and one order for ever.
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/reduce.cuh"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 1024;
constexpr int kInFlight = 8;

template <int N>
__global__ void __launch_bounds__(kThreads)
    sum_values(const float* __restrict__ values, int64_t count, float factor, float* total) {
  float sums[N] = {};
  const int64_t vectors = count / N;
  const auto add = [&](const Packed<float, N>& packed) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += packed[i];
  };
  int64_t v = threadIdx.x;
  for (; v + (kInFlight - 1) * kThreads < vectors; v += kInFlight * kThreads) {
    Packed<float, N> packed[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) packed[u].load(values + (v + u * kThreads) * N);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) add(packed[u]);
  }
  for (; v < vectors; v += kThreads) {
    Packed<float, N> packed;
    packed.load(values + v * N);
    add(packed);
  }
  const int64_t last = vectors * N + threadIdx.x;
  if (last < count) sums[0] += values[last];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += sums[i];
  __shared__ TeamSum<kThreads>::Shared shared;
  sum = TeamSum<kThreads>{&shared}(sum);
  if (threadIdx.x == 0) *total = sum * factor;
}

}  // namespace

void sum_all(const float* values, int64_t count, float factor, float* sum, Stream stream) {
  if (are_aligned(values)) {
    sum_values<4><<<1, kThreads, 0, stream>>>(values, count, factor, sum);
  } else {
    sum_values<1><<<1, kThreads, 0, stream>>>(values, count, factor, sum);
  }
  check_launch("sum_values");
}

}  // namespace trireme::gpu
