#include "trireme/data/sample_stream.h"

#include <fmt/format.h>

#include <limits>

#include "trireme/base/error.h"
#include "trireme/data/permutation.h"

namespace trireme {
namespace {

void check_position(int64_t position) {
  if (position < 0) throw UsageError(fmt::format("position {} of a sample stream is negative", position));
}

}  // namespace

SampleStream::SampleStream(std::shared_ptr<const Dataset> dataset, uint64_t seed, SampleOrder order, SampleParts parts)
    : dataset_(std::move(dataset)), seed_(seed), order_(order), parts_(parts) {
  if (dataset_ == nullptr) throw UsageError("a sample stream needs a dataset");
  if (dataset_->size() < 1) throw UsageError("a sample stream needs a dataset with at least one sample");
}

int64_t SampleStream::epoch_at(int64_t position) const {
  check_position(position);
  return position / dataset_->size();
}

int64_t SampleStream::index_at(int64_t position) const {
  const int64_t size = dataset_->size(), epoch = epoch_at(position), place = position % size;
  if (order_ == SampleOrder::kAsStored) return place;
  const Permutation order(static_cast<uint64_t>(size), seed_, static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(order(static_cast<uint64_t>(place)));
}

Batch SampleStream::read(int64_t position, int64_t count) const {
  check_position(position);
  if (count > std::numeric_limits<int64_t>::max() - position) {
    throw UsageError(fmt::format("{} samples from position {} are too many", count, position));
  }
  Batch batch(dataset_->shape(), count, parts_);
  for (int64_t i = 0; i < count; ++i) dataset_->read(index_at(position + i), batch, i);
  return batch;
}

}  // namespace trireme
