// Which samples train and which are held out: two parts of one row of samples, without a list of either.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/config/choices.h"
#include "trireme/data/permutation.h"

namespace trireme {

/// Samples of a row: number i of the part is number at(i) of the row. A value. Threads: all.
class SamplePart {
 public:
  /// Samples first … first + count - 1 of the row, in its order.
  static SamplePart range(int64_t first, int64_t count) { return {first, count, std::nullopt}; }
  /// Places first … first + count - 1 of a random order of the row's samples.
  static SamplePart drawn(const Permutation& order, int64_t first, int64_t count) { return {first, count, order}; }

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  int64_t at(int64_t index) const {
    const int64_t place = first_ + index;
    return order_ ? static_cast<int64_t>((*order_)(static_cast<uint64_t>(place))) : place;
  }

 private:
  SamplePart(int64_t first, int64_t count, std::optional<Permutation> order)
      : first_(first), count_(count), order_(order) {}

  int64_t first_, count_;
  std::optional<Permutation> order_;
};

/// Disjoint, and together the whole row; held_out is empty where the fraction is 0.
struct SampleSplit {
  SamplePart train, held_out;
};

/// Of `total` samples, `fraction` (from 0 to below 1) are held out: at least one where it is positive, and never all.
/// The same arguments give the same split on every machine. Needs two samples where the fraction is positive, else one.
SampleSplit split_samples(int64_t total, double fraction, HoldOut how, uint64_t seed);

}  // namespace trireme
