#include "trireme/data/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {

SampleSplit split_samples(int64_t total, double fraction, HoldOut how, uint64_t seed) {
  if (total < (fraction > 0 ? 2 : 1)) throw UsageError(fmt::format("{} samples cannot be split", total));
  if (fraction <= 0) return {SamplePart::range(0, total), SamplePart::range(total, 0)};
  const int64_t held = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(total)), 1, total - 1);
  if (how == HoldOut::kEnd) return {SamplePart::range(0, total - held), SamplePart::range(total - held, held)};
  // The held-out part comes first, so any prefix of it is itself drawn from the whole row: evaluations read one.
  const Permutation order(static_cast<uint64_t>(total), seed, 0, "held out");
  return {SamplePart::drawn(order, held, total - held), SamplePart::drawn(order, 0, held)};
}

}  // namespace trireme
