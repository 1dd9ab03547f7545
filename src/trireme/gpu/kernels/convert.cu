// Copies with a change of type.
#include <algorithm>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;

template <typename From, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    convert_elements(const From* __restrict__ from, To* __restrict__ to, int64_t count) {
  const int64_t vectors = count / N;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kInFlight + threadIdx.x;
  Packed<From, N> loaded[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const int64_t i = first + u * kThreads;
    if (i < vectors) loaded[u].load(from + i * N);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const int64_t i = first + u * kThreads;
    if (i >= vectors) continue;
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = loaded[u][j];
    Packed<To, N> result;
    result.set(values);
    result.store(to + i * N);
  }
  const int64_t last = vectors * N + threadIdx.x;  // elements that fill no vector
  if (blockIdx.x == 0 && last < count) {
    Packed<From, 1> one;
    Packed<To, 1> result;
    one.load(from + last);
    const float value[1] = {one[0]};
    result.set(value);
    result.store(to + last);
  }
}

}  // namespace

void convert(const void* from, Type from_type, void* to, Type to_type, int64_t count, Stream stream) {
  if (count == 0) return;
  if (from_type == to_type) {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * size_of(to_type), cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    return;
  }
  with_type(from_type, [&](auto from_tag) {
    with_type(to_type, [&](auto to_tag) {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      if constexpr (!std::is_same_v<From, To>) {
        const auto start = [&]<int N>(std::integral_constant<int, N>) {
          const int64_t blocks = ceil_div(count, int64_t{N} * kThreads * kInFlight);
          convert_elements<From, To, N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
              static_cast<const From*>(from), static_cast<To*>(to), count);
        };
        // As many elements as the wider type moves at once, so that neighbouring threads touch neighbouring memory.
        constexpr int N = std::min(kWide<From>, kWide<To>);
        if (are_aligned(from, to)) {
          start(std::integral_constant<int, N>{});
        } else {
          start(std::integral_constant<int, 1>{});
        }
      }
    });
  });
  check_launch("convert_elements");
}

}  // namespace trireme::gpu
