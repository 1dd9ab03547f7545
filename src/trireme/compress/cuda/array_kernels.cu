#include "trireme/compress/cuda/array_kernels.h"
#include "trireme/compress/cuda/grid.cuh"

namespace trireme::gpu {
namespace {

__global__ void __launch_bounds__(kThreads) add(float* into, const float* from, size_t count) {
  for (size_t i = first_index(); i < count; i += stride()) into[i] += from[i];
}

__global__ void __launch_bounds__(kThreads) scale(float* values, size_t count, float factor) {
  for (size_t i = first_index(); i < count; i += stride()) values[i] *= factor;
}

__global__ void __launch_bounds__(kThreads) dot(const float* a, const float* b, size_t count, double* sums) {
  __shared__ double own[kThreads];
  double sum = 0;
  for (size_t i = first_index(); i < count; i += stride()) sum += static_cast<double>(a[i]) * b[i];
  own[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) own[threadIdx.x] += own[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = own[0];
}

}  // namespace

void add_into(float* into, const float* from, size_t count, Stream stream) {
  if (count == 0) return;
  add<<<groups_over(count), kThreads, 0, stream>>>(into, from, count);
  check_launch("add_into");
}

void scale_by(float* values, size_t count, float factor, Stream stream) {
  if (count == 0) return;
  scale<<<groups_over(count), kThreads, 0, stream>>>(values, count, factor);
  check_launch("scale_by");
}

void dot_product(const float* a, const float* b, size_t count, double* sums, Stream stream) {
  dot<<<kDotSums, kThreads, 0, stream>>>(a, b, count, sums);
  check_launch("dot_product");
}

}  // namespace trireme::gpu
