// Which elements of an array are worth sending: the largest, those over a threshold, or a random choice.
//
// Indices come in ascending order, and are a function of the values alone (of seed and step for random ones): equal
// magnitudes are taken from the front. A NaN counts as larger than everything, so that it travels and is seen.
// Threads: all. Nothing blocks. Arrays have less than 2^32 elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/compress/kernels.h"

namespace trireme {

/// How many of `count` elements a density keeps: at least one, unless there are none.
size_t kept_elements(size_t count, double density);

/// Exactly the min(k, size) elements of largest magnitude. One pass over the array in most cases: a sample tells where
/// the k-th largest roughly lies, and only what is larger is looked at again.
std::vector<uint32_t> select_largest(std::span<const float> values, size_t k);
std::vector<uint32_t> select_largest(const compress_kernels::Kernels& kernels, std::span<const float> values, size_t k);

/// All elements with |x| >= threshold.
std::vector<uint32_t> select_over(std::span<const float> values, float threshold);

/// A choice of k elements: one from each of k neighbouring parts of the array of nearly equal size, so that each rank
/// that knows the name of the choice finds the same ones, in order, without a sort.
struct RandomDraw {
  /// `k` becomes `count` where it is more.
  RandomDraw(size_t count_, size_t k_, uint64_t seed, std::string_view stream, uint64_t step)
      : count(count_), k(std::min(k_, count_)), random(seed, stream, step) {}
  size_t count, k;
  Philox random;
};
/// What was chosen.
struct RandomChoice {
  std::vector<uint32_t> indices;
  /// The size of the part that indices[i] was chosen from: 1 / its probability.
  uint32_t part_of(size_t i) const { return static_cast<uint32_t>((i + 1) * count / k - i * count / k); }
  size_t count = 0, k = 0;
};
RandomChoice select_at_random(const RandomDraw& draw);

}  // namespace trireme
