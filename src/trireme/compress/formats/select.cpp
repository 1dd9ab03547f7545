#include "trireme/compress/formats/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace trireme {
namespace {

using compress_kernels::Kernels;

constexpr size_t kSample = 16384;
constexpr size_t kStrip = 4096;  // elements between two looks at whether the candidates still fit

uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

/// A magnitude that about 1.2 k elements reach, from a sample; 0 where a sample would tell nothing.
uint32_t likely_threshold(std::span<const float> values, size_t k) {
  if (values.size() < 4 * kSample) return 0;
  // An odd stride, so that the sample meets every column of a matrix.
  const size_t stride = values.size() / kSample | 1;
  std::vector<uint32_t> sample;
  sample.reserve(kSample + 1);
  for (size_t i = 0; i < values.size(); i += stride) sample.push_back(magnitude(values[i]));
  const double expected =
      static_cast<double>(k) / static_cast<double>(values.size()) * static_cast<double>(sample.size());
  const auto rank = static_cast<size_t>(1.1 * expected + 4 * std::sqrt(expected) + 4);
  if (rank >= sample.size()) return 0;
  std::nth_element(sample.begin(), sample.begin() + static_cast<ptrdiff_t>(rank), sample.end(), std::greater<>());
  return sample[rank];
}

/// A lower bound of the k-th largest magnitude that leaves few candidates, from a count of all elements by their upper
/// 12 bits.
uint32_t counted_threshold(std::span<const float> values, size_t k) {
  std::array<std::array<uint32_t, 4096>, 2> counts{};  // two, so that equal neighbours do not wait for each other
  for (size_t i = 0; i < values.size(); ++i) ++counts[i % 2][magnitude(values[i]) >> 19];
  size_t above = 0;
  for (size_t bin = 4096; bin-- > 0;) {
    above += counts[0][bin] + counts[1][bin];
    if (above >= k) return static_cast<uint32_t>(bin) << 19;
  }
  return 0;
}

/// All elements of at least that magnitude; false when there are more than `most`.
bool collect(const Kernels& kernels, std::span<const float> values, uint32_t least, size_t most,
             std::vector<uint32_t>& found) {
  found.resize(std::min(values.size(), most) + kStrip + 1);
  size_t count = 0;
  for (size_t at = 0; at < values.size(); at += kStrip) {
    if (count > most) return false;
    const size_t n = std::min(kStrip, values.size() - at);
    count += kernels.collect(values.data() + at, n, least, static_cast<uint32_t>(at), found.data() + count);
  }
  found.resize(count);
  return count <= most;
}

/// The k largest of the candidates, which hold them all.
void keep_largest(std::span<const float> values, size_t k, std::vector<uint32_t>& candidates) {
  if (candidates.size() == k) return;
  std::vector<uint32_t> magnitudes(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) magnitudes[i] = magnitude(values[candidates[i]]);
  const auto kth = magnitudes.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  const uint32_t least = *kth;
  auto equal = static_cast<size_t>(std::count(magnitudes.begin(), kth + 1, least));
  std::erase_if(candidates, [&](uint32_t index) {
    const uint32_t bits = magnitude(values[index]);
    if (bits != least) return bits < least;
    if (equal == 0) return true;
    --equal;
    return false;
  });
}

}  // namespace

size_t kept_elements(size_t count, double density) {
  if (count == 0) return 0;
  const auto kept = static_cast<size_t>(std::llround(density * static_cast<double>(count)));
  return std::clamp<size_t>(kept, 1, count);
}

std::vector<uint32_t> select_largest(const Kernels& kernels, std::span<const float> values, size_t k) {
  k = std::min(k, values.size());
  std::vector<uint32_t> found;
  if (k == 0) return found;
  const size_t most = std::min(values.size(), 2 * k + kSample);
  const uint32_t likely = likely_threshold(values, k);
  const bool enough = likely > 0 && collect(kernels, values, likely, most, found) && found.size() >= k;
  if (!enough) collect(kernels, values, counted_threshold(values, k), values.size(), found);
  keep_largest(values, k, found);
  return found;
}

std::vector<uint32_t> select_largest(std::span<const float> values, size_t k) {
  return select_largest(compress_kernels::fastest(), values, k);
}

}  // namespace trireme
