// Conversions between float and the 16-bit types in integer arithmetic: the bits that every instruction set must give.
#pragma once

#include <bit>
#include <cstdint>

#include "trireme/comm/types.h"

namespace trireme::kernels {

/// Exact. A signalling NaN becomes quiet and keeps its payload, as the hardware (F16C) does.
inline float float_of(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | quiet);
  }
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Rounds to nearest even. A NaN becomes quiet and keeps the top of its payload, as the hardware (F16C) does.
inline Half half_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, halfway between the largest half and the next power: infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal half
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  } else if (magnitude <= 0x33000000u) {  // 2^-25, halfway between zero and the smallest half: zero is even
    half = 0;
  } else {  // subnormal: count in units of 2^-24
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t rest = fraction & ((1u << shift) - 1);
    const uint32_t middle = 1u << (shift - 1);
    half = fraction >> shift;
    if (rest > middle || (rest == middle && (half & 1) != 0)) ++half;
  }
  return Half{static_cast<uint16_t>(sign | half)};
}

/// Exact, and the bits of a NaN stay.
constexpr float float_of(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

/// Rounds to nearest even. A NaN becomes quiet and keeps the top of its payload.
constexpr BFloat16 bfloat16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = nan ? bits | 0x00400000u : bits + 0x7fffu + ((bits >> 16) & 1);
  return BFloat16{static_cast<uint16_t>(rounded >> 16)};
}

}  // namespace trireme::kernels
