// Dropout whose mask is a function of the element's number: base/philox.h, bit for bit.
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/philox.cuh"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of one Philox block

/// A thread has the elements of one Philox block. x and y may be the same.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    drop(const T* x, T* y, int64_t count, DropoutMask mask, float kept, uint64_t first_block) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const uint64_t block = first_block + thread;
  const uint4 counter = philox_counter(block, static_cast<uint32_t>(mask.step), static_cast<uint32_t>(mask.step >> 32));
  const uint4 words = philox4x32(counter, {mask.key[0], mask.key[1]});
  const uint32_t each[kWords] = {words.x, words.y, words.z, words.w};
  const int64_t start = static_cast<int64_t>(block * kWords - mask.first);
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    const int64_t i = start + j;
    if (i < 0 || i >= count) continue;
    const float uniform = static_cast<float>(each[j] >> 8) * 0x1p-24f;
    Packed<T, 1> element;
    element.load(x + i);
    const float value[1] = {element[0] * (uniform < mask.p ? 0.f : kept)};
    element.set(value);
    element.store(y + i);
  }
}

/// The factor of what is kept, as a number of the type.
template <typename T>
float rounded(float value) {
  return static_cast<float>(static_cast<T>(value));
}

}  // namespace

void dropout(const void* x, void* y, int64_t count, const DropoutMask& mask, Type type, Stream stream) {
  if (count == 0) return;
  const uint64_t first_block = mask.first / kWords, end = mask.first + static_cast<uint64_t>(count);
  const auto threads = static_cast<int64_t>((end + kWords - 1) / kWords - first_block);
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    drop<T><<<static_cast<unsigned>(ceil_div(threads, kThreads)), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(y), count, mask, rounded<T>(mask.kept), first_block);
  });
  check_launch("dropout");
}

}  // namespace trireme::gpu
