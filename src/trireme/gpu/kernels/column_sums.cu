// Sums over columns, in two stages: blocks sum chunks of rows, then their partial rows are summed.
#include <algorithm>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/reduce.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kRowLanes = 8;  // warps of a block: each takes every eighth row
constexpr int kInFlight = 8;  // loads that a thread has on their way

/// Chunks of rows, by the shape alone, so that the bits are the same on every GPU and for every alignment.
int64_t num_chunks(int64_t rows, int64_t width) {
  const int64_t column_blocks = ceil_div(width, 256);
  return std::clamp<int64_t>(ceil_div(8 * kMultiprocessors, column_blocks), 1, std::max<int64_t>(rows / 64, 1));
}

template <typename T, int N>
__global__ void __launch_bounds__(32 * kRowLanes)
    chunk_sums(const T* __restrict__ x, int64_t rows, int64_t width, int64_t rows_of_chunk, float* partials) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * N;
  const int64_t end = min(rows, (static_cast<int64_t>(blockIdx.y) + 1) * rows_of_chunk);
  float sums[N] = {};
  if (column < width) {
    int64_t row = static_cast<int64_t>(blockIdx.y) * rows_of_chunk + threadIdx.y;
    const auto add = [&]<int count>(std::integral_constant<int, count>) {
      Packed<T, N> loaded[count];
#pragma unroll
      for (int u = 0; u < count; ++u) loaded[u].load(x + (row + u * kRowLanes) * width + column);
#pragma unroll
      for (int u = 0; u < count; ++u) {
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += loaded[u][i];
      }
      row += count * kRowLanes;
    };
    while (row + (kInFlight - 1) * kRowLanes < end) add(std::integral_constant<int, kInFlight>{});
    while (row < end) add(std::integral_constant<int, 1>{});
  }
  __shared__ float shared[kRowLanes][32 * N];
#pragma unroll
  for (int i = 0; i < N; ++i) shared[threadIdx.y][threadIdx.x + 32 * i] = sums[i];  // no two threads on one bank
  __syncthreads();
  for (int j = threadIdx.y * 32 + threadIdx.x; j < 32 * N; j += 32 * kRowLanes) {
    float sum = 0;
#pragma unroll
    for (int lane = 0; lane < kRowLanes; ++lane) sum += shared[lane][j];
    const int64_t to = (static_cast<int64_t>(blockIdx.x) * 32 + j % 32) * N + j / 32;
    if (to < width) partials[blockIdx.y * width + to] = sum;
  }
}

constexpr int kSumColumns = 32, kSumLanes = 16;

__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    partial_sums(const float* __restrict__ partials, int64_t count, int64_t width, float* first, int64_t num_first,
                 float* second) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t i = threadIdx.y; i < count; i += kSumLanes) sum += partials[i * width + column];
  }
  __shared__ float shared[kSumLanes][kSumColumns];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  sum = 0;
#pragma unroll
  for (int lane = 0; lane < kSumLanes; ++lane) sum += shared[lane][threadIdx.x];
  (column < num_first ? first[column] : second[column - num_first]) = sum;
}

}  // namespace

void sum_partials(const float* partials, int64_t count, int64_t width, float* first, int64_t num_first, float* second,
                  Stream stream) {
  const dim3 threads(kSumColumns, kSumLanes);
  partial_sums<<<static_cast<unsigned>(ceil_div(width, kSumColumns)), threads, 0, stream>>>(partials, count, width,
                                                                                            first, num_first, second);
  check_launch("partial_sums");
}

size_t column_sums_scratch(int64_t rows, int64_t width) {
  return static_cast<size_t>(num_chunks(rows, width) * width) * sizeof(float);
}

void column_sums(const void* x, int64_t rows, int64_t width, Type type, float* sums, void* scratch, Stream stream) {
  if (width == 0) return;
  const int64_t chunks = num_chunks(rows, width), rows_of_chunk = ceil_div(rows, chunks);
  auto* partials = static_cast<float*>(scratch);
  const dim3 threads(32, kRowLanes);
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto launch = [&]<int N>(std::integral_constant<int, N>) {
      const dim3 grid(static_cast<unsigned>(ceil_div(width, 32 * N)), static_cast<unsigned>(chunks));
      chunk_sums<T, N><<<grid, threads, 0, stream>>>(static_cast<const T*>(x), rows, width, rows_of_chunk, partials);
    };
    if (width % kWide<T> == 0 && are_aligned(x)) {
      launch(std::integral_constant<int, kWide<T>>{});
    } else {
      launch(std::integral_constant<int, 1>{});
    }
  });
  check_launch("chunk_sums");
  sum_partials(partials, chunks, width, sums, width, nullptr, stream);
}

}  // namespace trireme::gpu
