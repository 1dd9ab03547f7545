#include "trireme/compress/cuda/grid.cuh"
#include "trireme/compress/cuda/random_kernels.h"
#include "trireme/gpu/kernels/philox.cuh"

namespace trireme::gpu {
namespace {

/// RandomDraw for kernels.
struct Draw {
  uint64_t count, k;
  uint2 key;
  uint32_t step[2];
};

Draw draw_of(const RandomDraw& draw) {
  const PhiloxKey& key = draw.random.key();
  const uint64_t step = draw.random.step();
  return {draw.count, draw.k, {key[0], key[1]}, {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}};
}

struct Part {
  uint64_t index;  ///< of the chosen element
  uint64_t size;
};

/// As select_at_random() and Philox::below().
__device__ Part part_of(const Draw& draw, uint64_t i) {
  const uint64_t first = i * draw.count / draw.k, size = (i + 1) * draw.count / draw.k - first;
  const uint4 words = philox4x32(philox_counter(i / 2, draw.step[0], draw.step[1]), draw.key);
  const uint64_t word =
      i % 2 == 0 ? static_cast<uint64_t>(words.y) << 32 | words.x : static_cast<uint64_t>(words.w) << 32 | words.z;
  return {first + __umul64hi(word, size), size};
}

__global__ void __launch_bounds__(kThreads)
    take(Draw draw, float* from, bool scaled, const uint32_t* not_finite, float* chosen) {
  for (size_t i = first_index(); i < draw.k; i += stride()) {
    const Part part = part_of(draw, i);
    const float value = from[part.index] * (scaled ? static_cast<float>(static_cast<uint32_t>(part.size)) : 1.f);
    chosen[i] = i == 0 && *not_finite != 0 ? __uint_as_float(0x7fc00000u) : value;
    from[part.index] = 0;
  }
}

__global__ void __launch_bounds__(kThreads) put(Draw draw, const float* chosen, float* out) {
  for (size_t i = first_index(); i < draw.k; i += stride()) out[part_of(draw, i).index] = chosen[i];
}

}  // namespace

void take_at_random(const RandomDraw& draw, float* from, bool scaled, const uint32_t* not_finite, float* chosen,
                    Stream stream) {
  if (draw.k == 0) return;
  take<<<groups_over(draw.k), kThreads, 0, stream>>>(draw_of(draw), from, scaled, not_finite, chosen);
  check_launch("take_at_random");
}

void put_at_random(const RandomDraw& draw, const float* chosen, float* out, Stream stream) {
  if (draw.k == 0) return;
  put<<<groups_over(draw.k), kThreads, 0, stream>>>(draw_of(draw), chosen, out);
  check_launch("put_at_random");
}

}  // namespace trireme::gpu
