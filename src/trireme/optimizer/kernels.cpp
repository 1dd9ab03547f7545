#include "trireme/optimizer/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

// Clones are selected while the program is loaded, before a sanitizer is ready.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRIREME_VECTORIZED
#else
#define TRIREME_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

namespace trireme {
namespace {

TRIREME_VECTORIZED double block_sum(const float* values, size_t count) {
  double lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]) * values[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

double tree_sum(const double* values, size_t count) {
  if (count == 1) return values[0];
  const size_t split = std::bit_floor(count - 1);
  return tree_sum(values, split) + tree_sum(values + split, count - split);
}

}  // namespace

TRIREME_VECTORIZED void adam_update(float* __restrict weight, const float* __restrict gradient, float* __restrict first,
                                    float* __restrict second, size_t count, const AdamStep& step) {
  const AdamStep s = step;
  const float rest1 = 1 - s.beta1, rest2 = 1 - s.beta2;
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.factor + s.decay * weight[i];
    const float m = first[i] + rest1 * (g - first[i]);
    const float v = s.beta2 * second[i] + rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    weight[i] = s.keep * weight[i] - s.lr * (m / (std::sqrt(v) * s.inverse_root + s.eps));
  }
}

TRIREME_VECTORIZED void sgd_update(float* __restrict weight, const float* __restrict gradient,
                                   float* __restrict velocity, size_t count, const SgdStep& step) {
  const SgdStep s = step;
  if (velocity == nullptr) {
    for (size_t i = 0; i < count; ++i) weight[i] -= s.lr * (gradient[i] * s.factor + s.decay * weight[i]);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.factor + s.decay * weight[i];
    const float v = s.momentum * velocity[i] + g;
    velocity[i] = v;
    weight[i] -= s.lr * (s.nesterov ? g + s.momentum * v : v);
  }
}

double block_squares(const float* block, size_t count) { return block_sum(block, count); }

void append_block_squares(const float* values, size_t count, std::vector<double>& sums) {
  for (size_t first = 0; first < count; first += kSquaresBlock) {
    sums.push_back(block_sum(values + first, std::min(kSquaresBlock, count - first)));
  }
}

double add_block_squares(std::span<const double> sums) { return sums.empty() ? 0 : tree_sum(sums.data(), sums.size()); }

double sum_of_squares(const float* values, size_t count) {
  std::vector<double> sums;
  append_block_squares(values, count, sums);
  return add_block_squares(sums);
}

}  // namespace trireme
