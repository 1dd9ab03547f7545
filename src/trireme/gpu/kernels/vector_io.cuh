// Elements of a type, up to 16 bytes of them moved at once, seen as floats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace trireme::gpu {

/// Elements that one 16-byte access moves.
template <typename T>
inline constexpr int kWide = 16 / sizeof(T);

/// N neighbouring elements in registers, as they lie in memory: half the registers of floats for 2-byte types.
template <typename T, int N>
struct Packed {
  static constexpr int kBytes = N * sizeof(T);
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  uint32_t words[(kBytes + 3) / 4];

  /// `from` is aligned to kBytes.
  __device__ void load(const T* from) {
    if constexpr (kBytes == 16) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else if constexpr (kBytes == 8) {
      const uint2 all = *reinterpret_cast<const uint2*>(from);
      words[0] = all.x, words[1] = all.y;
    } else if constexpr (kBytes == 4) {
      words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      words[0] = *reinterpret_cast<const uint16_t*>(from);
    }
  }

  __device__ void store(T* to) const {
    if constexpr (kBytes == 16) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<uint32_t*>(to) = words[0];
    } else {
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(words[0]);
    }
  }

  __device__ void clear() {
#pragma unroll
    for (uint32_t& word : words) word = 0;
  }

  /// `i` is a constant once loops are unrolled.
  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[i]);
    } else {
      const uint32_t word = words[i / 2];
      if constexpr (std::is_same_v<T, __half>) {
        return __half2float(__ushort_as_half(static_cast<uint16_t>(i % 2 ? word >> 16 : word)));
      } else {
        return __uint_as_float(i % 2 ? word & 0xFFFF0000u : word << 16);
      }
    }
  }

  /// Rounds to nearest even.
  __device__ void set(const float (&values)[N]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < N; ++i) words[i] = __float_as_uint(values[i]);
    } else if constexpr (N == 1) {
      if constexpr (std::is_same_v<T, __half>) {
        words[0] = __half_as_ushort(__float2half_rn(values[0]));
      } else {
        words[0] = __bfloat16_as_ushort(__float2bfloat16_rn(values[0]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        if constexpr (std::is_same_v<T, __half>) {
          const __half2 pair = __floats2half2_rn(values[i], values[i + 1]);
          words[i / 2] = *reinterpret_cast<const uint32_t*>(&pair);
        } else {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
          words[i / 2] = *reinterpret_cast<const uint32_t*>(&pair);
        }
      }
    }
  }
};

}  // namespace trireme::gpu
