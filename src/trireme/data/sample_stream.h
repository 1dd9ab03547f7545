// The order in which training sees samples: a function of seed and position, and of nothing else.
//
// A position counts samples since the start of training. With N samples, position p is in epoch p / N and is sample
// permutation(seed, epoch)(p mod N): each sample once an epoch, in another order each time. Workers, ranks and
// restarts do not appear: whoever reads positions 96 to 127 gets the same samples.
#pragma once

#include <memory>

#include "trireme/data/dataset.h"

namespace trireme {

enum class SampleOrder { kShuffled, kAsStored };

/// A value that shares its dataset. Threads: all.
class SampleStream {
 public:
  SampleStream(std::shared_ptr<const Dataset> dataset, uint64_t seed, SampleOrder order = SampleOrder::kShuffled,
               SampleParts parts = {});

  const Dataset& dataset() const { return *dataset_; }
  int64_t epoch_at(int64_t position) const;
  int64_t index_at(int64_t position) const;
  /// Samples position … position + count - 1; may cross from one epoch to the next. UsageError if one is negative.
  Batch read(int64_t position, int64_t count) const;

 private:
  std::shared_ptr<const Dataset> dataset_;
  uint64_t seed_;
  SampleOrder order_;
  SampleParts parts_;
};

}  // namespace trireme
