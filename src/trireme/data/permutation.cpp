#include "trireme/data/permutation.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr uint64_t kRounds = 6;

/// The smallest a with a·a ≥ n. The square root of a double may be off by one above 2^52.
uint64_t root_above(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch, std::string_view stream)
    : n_(n), philox_(seed, stream, epoch) {
  if (n == 0 || n > uint64_t{1} << 62) throw UsageError("a permutation needs from 1 to 2^62 numbers");
  a_ = root_above(n);
  b_ = (n + a_ - 1) / a_;
}

uint64_t Permutation::operator()(uint64_t index) const {
  uint64_t value = once(index);
  // The walk comes back to `index`, which is below n, at the latest.
  while (value >= n_) value = once(value);
  return value;
}

uint64_t Permutation::once(uint64_t value) const {
  uint64_t left = value % a_, right = value / a_;
  for (uint64_t round = 0; round < kRounds; ++round) {
    uint64_t& target = round % 2 == 0 ? left : right;
    const uint64_t size = round % 2 == 0 ? a_ : b_, source = round % 2 == 0 ? right : left;
    target += philox_.below(size, source * kRounds + round);
    if (target >= size) target -= size;
  }
  return right * a_ + left;
}

}  // namespace trireme
