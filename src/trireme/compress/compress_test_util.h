// Values and settings that the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/compress/method.h"

namespace trireme {

/// Normal numbers, each 100 elements of another size: like gradients of several layers.
inline std::vector<float> test_values(size_t count, uint64_t seed, uint64_t step = 0) {
  std::vector<float> values(count);
  Philox(seed, "test values", step).fill_normal(values);
  for (size_t i = 0; i < count; ++i) values[i] *= 0.01f * static_cast<float>(1 + i / 100 % 5);
  return values;
}

/// Bits, so that NaNs and zeros of either sign compare as they are.
inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

/// Every method, qsgd with each number of bits; with settings that suit test_values.
inline std::vector<CompressionOptions> all_options() {
  std::vector<CompressionOptions> all;
  for (const std::string_view name : all_names<Method>()) {
    CompressionOptions options;
    options.method = named<Method>(name).value();
    options.density = 0.05;
    options.rank = 2;
    options.seed = 7;
    if (options.method != Method::kQsgd) {
      all.push_back(options);
      continue;
    }
    for (const int bits : {1, 2, 4, 8}) {
      options.bits = bits;
      all.push_back(options);
    }
  }
  return all;
}

inline std::string label(const CompressionOptions& options) {
  return std::string(name_of(options.method)) + (options.method == Method::kQsgd ? std::to_string(options.bits) : "");
}

inline constexpr BlockFormat format_at(size_t i) { return static_cast<BlockFormat>(i); }

}  // namespace trireme
