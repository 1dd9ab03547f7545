#include "trireme/compress/formats/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "trireme/comm/reduce/reduce.h"

// One source, compiled for each instruction set; elements do not meet, or meet in a fixed order: the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRIREME_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRIREME_VECTORIZED
#endif

namespace trireme {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

TRIREME_VECTORIZED void scale_loop(float* values, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

TRIREME_VECTORIZED uint32_t largest_exponent(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & kInfinity;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

TRIREME_VECTORIZED double dot_loop(const float* a, const float* b, size_t count) {
  double lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  }
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(a[i]) * b[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void add_into(std::span<float> into, std::span<const float> from) {
  combine(ReduceOp::kSum, DataType::kFloat, into.data(), into.data(), from.data(), into.size());
}

void scale_by(std::span<float> values, float factor) { scale_loop(values.data(), values.size(), factor); }

void weigh(float a, std::span<const float> x, float b, std::span<const float> y, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = a * x[i] + b * y[i];
}

void clamp_to(std::span<float> values, float limit) {
  for (float& value : values) value = std::clamp(value, -limit, limit);
}

bool all_finite(std::span<const float> values) { return largest_exponent(values.data(), values.size()) < kInfinity; }

void clear_not_finite(std::span<float> values) {
  if (all_finite(values)) return;
  for (float& value : values) {
    if ((std::bit_cast<uint32_t>(value) & kInfinity) == kInfinity) value = 0;
  }
}

double dot_product(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t at = 0; at < a.size(); at += kDotBlock) {
    sum += dot_loop(a.data() + at, b.data() + at, std::min(kDotBlock, a.size() - at));
  }
  return sum;
}

}  // namespace trireme
