// GELU and its derivative over whole tensors.
#include "trireme/gpu/kernels/gelu.cuh"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

struct Forward {
  static constexpr bool kHasGradient = false;
  template <typename T>
  static __device__ float value(float x, float) {
    return gelu_of<T>(x);
  }
};

struct Backward {
  static constexpr bool kHasGradient = true;
  template <typename T>
  static __device__ float value(float x, float dy) {
    return gelu_gradient_of<T>(x, dy);
  }
};

constexpr int kThreads = 256;
constexpr int kInFlight = 4;

/// No pointer is __restrict__: the result may lie where an operand does. A thread reads all of its operands first.
template <typename T, int N, typename Function>
__global__ void __launch_bounds__(kThreads) map(const T* x, const T* dy, T* y, int64_t count) {
  const int64_t vectors = count / N;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kInFlight + threadIdx.x;
  Packed<T, N> operand[kInFlight], gradient[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const int64_t i = first + u * kThreads;
    if (i >= vectors) continue;
    operand[u].load(x + i * N);
    if constexpr (Function::kHasGradient) gradient[u].load(dy + i * N);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const int64_t i = first + u * kThreads;
    if (i >= vectors) continue;
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      values[j] = Function::template value<T>(operand[u][j], Function::kHasGradient ? gradient[u][j] : 0);
    }
    Packed<T, N> result;
    result.set(values);
    result.store(y + i * N);
  }
  const int64_t last = vectors * N + threadIdx.x;  // elements that fill no vector
  if (blockIdx.x == 0 && last < count) {
    Packed<T, 1> one, its_gradient;
    one.load(x + last);
    if constexpr (Function::kHasGradient) its_gradient.load(dy + last);
    const float value[1] = {Function::template value<T>(one[0], Function::kHasGradient ? its_gradient[0] : 0)};
    one.set(value);
    one.store(y + last);
  }
}

template <typename Function>
void launch(const void* x, const void* dy, void* y, int64_t count, Type type, Stream stream) {
  if (count == 0) return;
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* from = static_cast<const T*>(x);
    const auto* gradient = static_cast<const T*>(dy);
    const auto blocks = [&](int64_t n) { return static_cast<unsigned>(ceil_div(count, n * kThreads * kInFlight)); };
    if (are_aligned(x, dy, y)) {
      constexpr int N = kWide<T>;
      map<T, N, Function><<<blocks(N), kThreads, 0, stream>>>(from, gradient, static_cast<T*>(y), count);
    } else {
      map<T, 1, Function><<<blocks(1), kThreads, 0, stream>>>(from, gradient, static_cast<T*>(y), count);
    }
  });
  check_launch("gelu");
}

}  // namespace

void gelu(const void* x, void* y, int64_t count, Type type, Stream stream) {
  launch<Forward>(x, nullptr, y, count, type, stream);
}

void gelu_backward(const void* x, const void* dy, void* dx, int64_t count, Type type, Stream stream) {
  launch<Backward>(x, dy, dx, count, type, stream);
}

}  // namespace trireme::gpu
