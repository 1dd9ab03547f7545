#include "trireme/compress/cuda/array_kernels.h"
#include "trireme/compress/cuda/dot.cuh"
#include "trireme/compress/cuda/grid.cuh"
#include "trireme/compress/formats/arithmetic.h"

namespace trireme::gpu {
namespace {

__global__ void __launch_bounds__(kThreads) add(float* into, const float* from, size_t count) {
  for (size_t i = first_index(); i < count; i += stride()) into[i] += from[i];
}

__global__ void __launch_bounds__(kThreads) scale(float* values, size_t count, float factor) {
  for (size_t i = first_index(); i < count; i += stride()) values[i] *= factor;
}

__global__ void __launch_bounds__(kThreads)
    add_weighed(float a, const float* x, float b, const float* y, float* out, size_t count) {
  for (size_t i = first_index(); i < count; i += stride()) out[i] = a * x[i] + b * y[i];
}

__global__ void __launch_bounds__(kThreads) clamp(float* values, size_t count, float limit) {
  for (size_t i = first_index(); i < count; i += stride()) {
    const float value = values[i];
    if (value < -limit) values[i] = -limit;
    if (limit < value) values[i] = limit;
  }
}

__global__ void __launch_bounds__(kThreads) clear_bad(float* values, size_t count, uint32_t* found) {
  for (size_t i = first_index(); i < count; i += stride()) {
    if ((__float_as_uint(values[i]) & 0x7f800000u) != 0x7f800000u) continue;
    values[i] = 0;
    if (found != nullptr) *found = 1;
  }
}

/// Sixteen threads sum a block.
__global__ void __launch_bounds__(kThreads) dot(const float* a, const float* b, size_t count, double* sums) {
  const size_t block = (static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x) / kDotLanes;
  const size_t begin = block * kDotBlock;
  const double sum = begin < count ? dot_of_block(a + begin, b + begin, min(kDotBlock, count - begin)) : 0;
  if (begin < count && threadIdx.x % kDotLanes == 0) sums[block] = sum;
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

void weigh(float a, const float* x, float b, const float* y, float* out, size_t count, Stream stream) {
  if (count == 0) return;
  add_weighed<<<groups_over(count), kThreads, 0, stream>>>(a, x, b, y, out, count);
  check_launch("weigh");
}

void clamp_to(float* values, size_t count, float limit, Stream stream) {
  if (count == 0) return;
  clamp<<<groups_over(count), kThreads, 0, stream>>>(values, count, limit);
  check_launch("clamp_to");
}

void clear_not_finite(float* values, size_t count, uint32_t* found, Stream stream) {
  if (count == 0) return;
  clear_bad<<<groups_over(count), kThreads, 0, stream>>>(values, count, found);
  check_launch("clear_not_finite");
}

void dot_blocks(const float* a, const float* b, size_t count, double* sums, Stream stream) {
  if (count == 0) return;
  const size_t num_threads = (count + kDotBlock - 1) / kDotBlock * kDotLanes;
  dot<<<static_cast<unsigned>(ceil_div(static_cast<int64_t>(num_threads), kThreads)), kThreads, 0, stream>>>(
      a, b, count, sums);
  check_launch("dot_blocks");
}

}  // namespace trireme::gpu
