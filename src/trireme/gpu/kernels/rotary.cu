// Rotary positions, in place.
#include "trireme/gpu/kernels/grid_index.cuh"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 2;

/// An item is N pairs of one head of one row.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) rotate_pairs(RotaryShape shape, T* x, const float* __restrict__ cosine,
                                                         const float* __restrict__ sine, float direction) {
  const auto half = static_cast<uint32_t>(shape.head_dim / 2), items_of_head = half / N;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kInFlight;
  const ItemIndex index(first, static_cast<uint32_t>(shape.heads) * items_of_head);
  const int64_t first_position = index.first_row % shape.seq;
  constexpr int V = N < 4 ? N : 4;  // angles are floats: four a load
  Packed<T, N> low[kInFlight], high[kInFlight];
  Packed<float, V> cosines[kInFlight][N / V], sines[kInFlight][N / V];
  T* to[kInFlight];
  bool there[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    uint32_t place;
    const uint32_t rows = index.find(u * kThreads + threadIdx.x, place);
    there[u] = index.first_row + rows < shape.rows;
    if (!there[u]) continue;
    const uint32_t head = place / items_of_head, element = place % items_of_head * N;
    int64_t position = first_position + rows;
    if (position >= shape.seq) position %= shape.seq;
    to[u] = x + (index.first_row + rows) * shape.stride + static_cast<int64_t>(head) * shape.head_dim + element;
    low[u].load(to[u]);
    high[u].load(to[u] + half);
#pragma unroll
    for (int part = 0; part < N / V; ++part) {
      cosines[u][part].load(cosine + position * half + element + part * V);
      sines[u][part].load(sine + position * half + element + part * V);
    }
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (!there[u]) continue;
    float turned_low[N], turned_high[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float c = cosines[u][i / V][i % V], s = sines[u][i / V][i % V] * direction;
      turned_low[i] = fmaf(low[u][i], c, -(high[u][i] * s));
      turned_high[i] = fmaf(high[u][i], c, low[u][i] * s);
    }
    Packed<T, N> result;
    result.set(turned_low);
    result.store(to[u]);
    result.set(turned_high);
    result.store(to[u] + half);
  }
}

}  // namespace

void rotate(const RotaryShape& shape, void* x, const float* cosine, const float* sine, bool back, Stream stream) {
  const int64_t half = shape.head_dim / 2;
  if (shape.rows == 0 || shape.heads == 0 || half == 0) return;
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto start = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t blocks = ceil_div(shape.rows * shape.heads * (half / N), kThreads * kInFlight);
      rotate_pairs<T, N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(shape, static_cast<T*>(x), cosine,
                                                                                 sine, back ? -1.0f : 1.0f);
    };
    if (half % kWide<T> == 0 && shape.stride % kWide<T> == 0 && are_aligned(x, cosine, sine)) {
      start(std::integral_constant<int, kWide<T>>{});
    } else {
      start(std::integral_constant<int, 1>{});
    }
  });
  check_launch("rotate_pairs");
}

}  // namespace trireme::gpu
