// Types that numbers are computed in, by name.
#pragma once

#include <cstdint>
#include <utility>

#include "trireme/base/names.h"

namespace trireme {

enum class NumberType : uint8_t { kFloat32, kFloat16, kBfloat16, kFp8 };
constexpr auto names_of(NumberType) {
  return std::to_array<std::string_view>({"float32", "float16", "bfloat16", "fp8"});
}

/// Shorter names that other trainers have for them.
inline constexpr std::pair<std::string_view, std::string_view> kNumberTypeAliases[] = {
    {"fp32", "float32"}, {"bf16", "bfloat16"}, {"fp16", "float16"}};
/// By name or short name; throws UsageError.
NumberType number_type(std::string_view name);

constexpr double bytes_of(NumberType type) {
  return type == NumberType::kFloat32 ? 4 : type == NumberType::kFp8 ? 1 : 2;
}

}  // namespace trireme
