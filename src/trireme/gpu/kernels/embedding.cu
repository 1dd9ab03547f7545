// Looking up rows of embeddings: a warp a row.
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kInFlight = 4;

template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
    look_up(EmbeddingShape shape, const int64_t* __restrict__ tokens, const T* __restrict__ table,
            const T* __restrict__ positions, T* __restrict__ y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (row >= shape.rows) return;
  const int64_t token = tokens[row];
  const bool known = token >= 0 && token < shape.vocab;
  const T* const from = table + (known ? token : 0) * shape.width;
  const T* const position = positions ? positions + row % shape.seq * shape.width : nullptr;
  T* const to = y + row * shape.width;
  for (int64_t first = threadIdx.x * N; first < shape.width; first += 32 * N * kInFlight) {
    Packed<T, N> loaded[kInFlight], added[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t column = first + u * 32 * N;
      if (column >= shape.width) continue;
      loaded[u].load(from + column);
      if (position) added[u].load(position + column);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t column = first + u * 32 * N;
      if (column >= shape.width) continue;
      float values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        values[i] = loaded[u][i];
        if (position) values[i] += added[u][i];
        if (!known) values[i] = __int_as_float(0x7FFFFFFF);
      }
      Packed<T, N> result;
      result.set(values);
      result.store(to + column);
    }
  }
}

}  // namespace

void embedding(const EmbeddingShape& shape, const int64_t* tokens, const void* table, const void* positions, void* y,
               Stream stream) {
  if (shape.rows == 0 || shape.width == 0) return;
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto start = [&]<int N>(std::integral_constant<int, N>) {
      look_up<T, N><<<static_cast<unsigned>(ceil_div(shape.rows, kWarps)), dim3(32, kWarps), 0, stream>>>(
          shape, tokens, static_cast<const T*>(table), static_cast<const T*>(positions), static_cast<T*>(y));
    };
    if (shape.width % kWide<T> == 0 && are_aligned(table, positions, y)) {
      start(std::integral_constant<int, kWide<T>>{});
    } else {
      start(std::integral_constant<int, 1>{});
    }
  });
  check_launch("look_up");
}

}  // namespace trireme::gpu
