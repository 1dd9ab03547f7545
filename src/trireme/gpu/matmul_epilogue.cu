#include <algorithm>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"
#include "trireme/gpu/matmul_epilogue.h"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostRowsAtOnce = 4096;

/// One thread a column: neighbours read neighbours, at any width and alignment.
template <typename T, typename Bias>
__global__ void add_bias_kernel(const T* from, T* to, const Bias* __restrict__ bias, int64_t rows, int64_t width) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= width) return;
  const float add = static_cast<float>(bias[column]);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t at = row * width + column;
    Packed<T, 1> element;
    element.load(from + at);
    element.set({element[0] + add});
    element.store(to + at);
  }
}

}  // namespace

void add_bias(const void* from, void* to, Type type, const void* bias, Type bias_type, int64_t rows, int64_t width,
              Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(width, kThreads)),
                  static_cast<unsigned>(std::min(rows, kMostRowsAtOnce)));
  with_type(type, [&]<typename T>(TypeTag<T>) {
    with_type(bias_type, [&]<typename Bias>(TypeTag<Bias>) {
      add_bias_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(from), static_cast<T*>(to),
                                                     static_cast<const Bias*>(bias), rows, width);
    });
  });
  check_launch("add_bias");
}

}  // namespace trireme::gpu
