// SwiGLU: silu(gate) · up.
#include "trireme/gpu/kernels/grid_index.cuh"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/sigmoid.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 2;

/// Forward where dy is null: writes y. Backward: writes d_gate and d_up, which may lie where gate and up do.
template <typename T, int N, bool kBackward>
__global__ void __launch_bounds__(kThreads)
    swiglu_map(SwigluShape shape, const T* gate, const T* up, const T* dy, T* y, T* d_gate, T* d_up) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kInFlight;
  const ItemIndex index(first, static_cast<uint32_t>(shape.width / N));
  Packed<T, N> gates[kInFlight], ups[kInFlight], gradients[kInFlight];
  int64_t strided[kInFlight], dense[kInFlight];
  bool there[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    uint32_t place;
    const int64_t row = index.first_row + index.find(u * kThreads + threadIdx.x, place);
    there[u] = row < shape.rows;
    if (!there[u]) continue;
    strided[u] = row * shape.stride + static_cast<int64_t>(place) * N;
    dense[u] = row * shape.width + static_cast<int64_t>(place) * N;
    gates[u].load(gate + strided[u]);
    ups[u].load(up + strided[u]);
    if constexpr (kBackward) gradients[u].load(dy + dense[u]);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (!there[u]) continue;
    float first_values[N], second_values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = gates[u][i], s = sigmoid<T>(g), silu = g * s;
      if constexpr (kBackward) {
        const float gradient = gradients[u][i];
        first_values[i] = gradient * ups[u][i] * fmaf(silu, 1 - s, s);
        second_values[i] = gradient * silu;
      } else {
        first_values[i] = silu * ups[u][i];
      }
    }
    Packed<T, N> result;
    result.set(first_values);
    if constexpr (kBackward) {
      result.store(d_gate + strided[u]);
      result.set(second_values);
      result.store(d_up + strided[u]);
    } else {
      result.store(y + dense[u]);
    }
  }
}

template <bool kBackward>
void launch(const SwigluShape& shape, const void* gate, const void* up, const void* dy, void* y, void* d_gate,
            void* d_up, Stream stream) {
  if (shape.rows == 0 || shape.width == 0) return;
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto start = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t blocks = ceil_div(shape.rows * (shape.width / N), kThreads * kInFlight);
      swiglu_map<T, N, kBackward><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
          shape, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(dy), static_cast<T*>(y),
          static_cast<T*>(d_gate), static_cast<T*>(d_up));
    };
    if (shape.width % kWide<T> == 0 && shape.stride % kWide<T> == 0 && are_aligned(gate, up, dy, y, d_gate, d_up)) {
      start(std::integral_constant<int, kWide<T>>{});
    } else {
      start(std::integral_constant<int, 1>{});
    }
  });
  check_launch("swiglu");
}

}  // namespace

void swiglu(const SwigluShape& shape, const void* gate, const void* up, void* y, Stream stream) {
  launch<false>(shape, gate, up, nullptr, y, nullptr, nullptr, stream);
}

void swiglu_backward(const SwigluShape& shape, const void* gate, const void* up, const void* dy, void* d_gate,
                     void* d_up, Stream stream) {
  launch<true>(shape, gate, up, dy, nullptr, d_gate, d_up, stream);
}

}  // namespace trireme::gpu
