#include <cuda_fp8.h>

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/gpu/fp8.h"
#include "trireme/gpu/kernels/launch.cuh"

namespace trireme::gpu {
namespace {

constexpr int kTile = 128;  ///< rows and columns of the part of a matrix that a block of threads turns
constexpr int kThreads = 256;
constexpr int kSide = 8;  ///< rows and columns of a thread's part

/// The larger of two pairs of |bfloat16|, as bits: for these the order of the bits is that of the values, NaN largest.
__device__ uint32_t larger_of_pairs(uint32_t most, uint32_t pair) { return __vmaxu2(most, pair & 0x7FFF7FFFu); }

__device__ void note_largest(uint32_t pairs, Fp8Scale* scale) {
  uint32_t most = max(pairs & 0xFFFFu, pairs >> 16);
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  __shared__ uint32_t of_warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const uint32_t other : of_warps) most = max(most, other);
    atomicMax(&scale->amax, most << 16);
  }
}

/// x · scale in 8 bits for a pair of bfloat16. x · 0 is 0, or NaN where x is not finite: the conversion alone would
/// make the largest value of an infinity, and nobody would ever see it.
template <__nv_fp8_interpretation_t kType>
__device__ uint32_t to_fp8(uint32_t pair, float scale) {
  const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xFFFF0000u);
  const float2 scaled = {__fmaf_rn(low, scale, low * 0.0f), __fmaf_rn(high, scale, high * 0.0f)};
  return __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, kType);
}

/// Bytes of four rows of four become those of four columns.
__device__ void turn(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

/// A thread has 8 rows of 8 elements. It writes them as they are, turns them in registers, and leaves 8 columns of 8 in
/// shared memory, from where whole lines of the transpose are written. There, line `column` has 16 places of 8 bytes,
/// and the place of row group g is g ^ (column group): 16 threads with neighbouring column groups meet different banks.
template <__nv_fp8_interpretation_t kType>
__global__ void __launch_bounds__(kThreads)
    quantise_kernel(const uint16_t* __restrict__ x, int64_t rows, int64_t cols, uint32_t tiles_across, Fp8Scale* state,
                    uint8_t* __restrict__ out, uint8_t* __restrict__ transposed) {
  __shared__ __align__(16) uint2 lines[kTile][kTile / kSide];
  const int64_t first_row = int64_t{blockIdx.x / tiles_across} * kTile;
  const int64_t first_col = int64_t{blockIdx.x % tiles_across} * kTile;
  const auto thread = static_cast<int>(threadIdx.x);
  const int col_group = thread % 16, row_group = thread / 16;
  const int64_t row = first_row + row_group * kSide, col = first_col + col_group * kSide;
  const float scale = state->scale;
  uint32_t pairs = 0;
  if (row < rows && col < cols) {  // both are multiples of 16: a thread's part is inside or outside as a whole
    uint4 loaded[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) loaded[i] = *reinterpret_cast<const uint4*>(x + (row + i) * cols + col);
    uint32_t left[kSide], right[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const uint4& v = loaded[i];
      pairs = larger_of_pairs(larger_of_pairs(larger_of_pairs(larger_of_pairs(pairs, v.x), v.y), v.z), v.w);
      left[i] = to_fp8<kType>(v.x, scale) | to_fp8<kType>(v.y, scale) << 16;
      right[i] = to_fp8<kType>(v.z, scale) | to_fp8<kType>(v.w, scale) << 16;
      if (out) *reinterpret_cast<uint2*>(out + (row + i) * cols + col) = make_uint2(left[i], right[i]);
    }
    turn(left[0], left[1], left[2], left[3]);
    turn(left[4], left[5], left[6], left[7]);
    turn(right[0], right[1], right[2], right[3]);
    turn(right[4], right[5], right[6], right[7]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      lines[col_group * kSide + j][row_group ^ col_group] = make_uint2(left[j], left[j + 4]);
      lines[col_group * kSide + j + 4][row_group ^ col_group] = make_uint2(right[j], right[j + 4]);
    }
  }
  note_largest(pairs, state);  // has a barrier
  if (!transposed) return;
#pragma unroll
  for (int i = thread; i < kTile * kTile / 16; i += kThreads) {
    const int line = i / 8, place = i % 8, group = line / kSide;
    const int64_t to_row = first_col + line, to_col = first_row + place * 16;
    if (to_row >= cols || to_col >= rows) continue;
    const uint4 two = *reinterpret_cast<const uint4*>(&lines[line][2 * (place ^ group / 2)]);
    *reinterpret_cast<uint4*>(transposed + to_row * rows + to_col) =
        group % 2 ? make_uint4(two.z, two.w, two.x, two.y) : two;
  }
}

__global__ void __launch_bounds__(kThreads)
    measure_kernel(const uint16_t* __restrict__ x, int64_t count, Fp8Scale* state) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t num_vectors = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? count / 8 : 0;
  uint32_t pairs = 0;
#pragma unroll 4
  for (int64_t i = first; i < num_vectors; i += stride) {
    const uint4 v = reinterpret_cast<const uint4*>(x)[i];
    pairs = larger_of_pairs(larger_of_pairs(larger_of_pairs(larger_of_pairs(pairs, v.x), v.y), v.z), v.w);
  }
  for (int64_t i = num_vectors * 8 + first; i < count; i += stride) pairs = larger_of_pairs(pairs, x[i]);
  note_largest(pairs, state);
}

__global__ void update_scales_kernel(Fp8Scale* scales, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  Fp8Scale& s = scales[i];
  const float amax = __uint_as_float(s.amax);
  s.amax = 0;
  if (!isfinite(amax)) return;
  s.history[s.position] = amax;
  s.position = (s.position + 1) % Fp8Scale::kHistory;
  float most = 0;
  for (const float value : s.history) most = fmaxf(most, value);
  if (most == 0) return;
  // The largest power of two with most · 2^power <= largest. Both exponents are exact, so no rounding decides.
  int power = ilogbf(s.largest) - ilogbf(most);
  if (scalbnf(most, power) > s.largest) --power;
  power = max(-126, min(126, power));
  s.scale = scalbnf(1, power);
  s.inverse = scalbnf(1, -power);
}

void check_size(const char* what, int64_t size) {
  if (size >= 0 && size % kFp8Multiple == 0) return;
  throw UsageError("a matrix of " + std::to_string(size) + " " + what + " cannot be used in 8 bits",
                   "sizes must be multiples of 16: use bfloat16 for this one");
}

void check_address(const char* what, const void* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % kFp8Multiple == 0) return;
  throw UsageError(std::string(what) + " of a matrix in 8 bits does not start at a multiple of 16 bytes");
}

}  // namespace

void quantise(const void* x, int64_t rows, int64_t cols, Fp8 type, Fp8Scale* scale, void* out, void* transposed,
              Stream stream) {
  check_size("rows", rows);
  check_size("columns", cols);
  check_address("the source", x);
  check_address("the memory", out);
  check_address("the memory of the transpose", transposed);
  if (rows == 0 || cols == 0) return;
  const auto tiles_across = static_cast<uint32_t>(ceil_div(cols, kTile));
  const auto grid = static_cast<unsigned>(ceil_div(rows, kTile) * tiles_across);
  const auto* from = static_cast<const uint16_t*>(x);
  auto* to = static_cast<uint8_t*>(out);
  auto* to_transposed = static_cast<uint8_t*>(transposed);
  if (type == Fp8::kE4M3) {
    quantise_kernel<__NV_E4M3><<<grid, kThreads, 0, stream>>>(from, rows, cols, tiles_across, scale, to, to_transposed);
  } else {
    quantise_kernel<__NV_E5M2><<<grid, kThreads, 0, stream>>>(from, rows, cols, tiles_across, scale, to, to_transposed);
  }
  check_launch("quantise");
}

void measure(const void* x, int64_t count, Fp8Scale* scale, Stream stream) {
  if (count == 0) return;
  const auto grid = static_cast<unsigned>(std::min(ceil_div(count, 8 * 4 * kThreads), kMultiprocessors * 8));
  measure_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint16_t*>(x), count, scale);
  check_launch("measure");
}

void update_scales(Fp8Scale* scales, int64_t count, Stream stream) {
  if (count == 0) return;
  update_scales_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0, stream>>>(scales, count);
  check_launch("update_scales");
}

}  // namespace trireme::gpu
