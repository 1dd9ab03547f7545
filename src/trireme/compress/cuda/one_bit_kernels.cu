#include "trireme/compress/cuda/grid.cuh"
#include "trireme/compress/cuda/one_bit_kernels.h"

namespace trireme::gpu {
namespace {

__device__ float root_of(float second, float root, float eps) { return sqrtf(second) * root + eps; }

__global__ void __launch_bounds__(kThreads) moves_of(float* values, const float* momentum, const float* second,
                                                     size_t count, float kept, float fresh, float root, float eps) {
  for (size_t i = first_index(); i < count; i += stride()) {
    values[i] = second[i] > 0 ? (kept * momentum[i] + fresh * values[i]) / root_of(second[i], root, eps) : 0.f;
  }
}

__global__ void __launch_bounds__(kThreads)
    momentum_of(const float* moves, const float* second, float* momentum, size_t count, float root, float eps) {
  for (size_t i = first_index(); i < count; i += stride()) {
    momentum[i] = second[i] > 0 ? moves[i] * root_of(second[i], root, eps) : 0.f;
  }
}

__global__ void __launch_bounds__(kThreads)
    move(const float* moves, const float* second, float* weight, size_t count, float lr, float decay) {
  for (size_t i = first_index(); i < count; i += stride()) {
    weight[i] -= lr * (decay * weight[i] + (second[i] > 0 ? moves[i] : 0.f));
  }
}

}  // namespace

void to_moves(const OneBitAdamSettings& s, float root, int num_ranks, float* values, const float* momentum,
              const float* second, size_t count, Stream stream) {
  if (count == 0) return;
  moves_of<<<groups_over(count), kThreads, 0, stream>>>(
      values, momentum, second, count, s.beta1 / static_cast<float>(num_ranks), 1 - s.beta1, root, s.eps);
  check_launch("to_moves");
}

void to_momentum(const OneBitAdamSettings& s, float root, const float* moves, const float* second, float* momentum,
                 size_t count, Stream stream) {
  if (count == 0) return;
  momentum_of<<<groups_over(count), kThreads, 0, stream>>>(moves, second, momentum, count, root, s.eps);
  check_launch("to_momentum");
}

void frozen_adam_step(const OneBitAdamSettings& s, const float* moves, const float* second, float* weight, size_t count,
                      Stream stream) {
  if (count == 0) return;
  move<<<groups_over(count), kThreads, 0, stream>>>(moves, second, weight, count, s.lr, s.weight_decay);
  check_launch("frozen_adam_step");
}

}  // namespace trireme::gpu
