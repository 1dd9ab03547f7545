#include "trireme/data/dataset.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

Batch::Batch(const SampleShape& shape, int64_t count, SampleParts parts) : count(count), parts(parts) {
  if (count < 0) throw UsageError(fmt::format("a batch of {} samples cannot be", count));
  const bool is_language = shape.is_language();
  if (parts.inputs && is_language) tokens.resize(static_cast<size_t>(count * shape.seq));
  if (parts.targets && is_language) targets.resize(static_cast<size_t>(count * shape.seq));
  if (parts.inputs && !is_language) images.resize(static_cast<size_t>(count * shape.num_pixels()));
  if (parts.targets && !is_language) labels.resize(static_cast<size_t>(count));
}

void Dataset::read(int64_t index, Batch& batch, int64_t slot) const {
  if (index < 0 || index >= size()) {
    throw UsageError(fmt::format("sample {} is not there: the dataset has 0 to {}", index, size() - 1));
  }
  if (slot < 0 || slot >= batch.count) {
    throw UsageError(fmt::format("place {} is not there: the batch has {}", slot, batch.count));
  }
  const SampleShape shape = this->shape();
  const auto part = [&](bool is_wanted, auto& all, int64_t length) {
    if (!is_wanted) length = 0;
    if (all.size() != static_cast<size_t>(batch.count * length)) {
      throw UsageError(fmt::format("a batch of {} samples holds {} values where {} are needed: it has another shape",
                                   batch.count, all.size(), batch.count * length));
    }
    return std::span(all).subspan(static_cast<size_t>(slot * length), static_cast<size_t>(length));
  };
  SampleSlot views;
  if (shape.is_language()) {
    views.tokens = part(batch.parts.inputs, batch.tokens, shape.seq);
    views.targets = part(batch.parts.targets, batch.targets, shape.seq);
  } else {
    views.image = part(batch.parts.inputs, batch.images, shape.num_pixels());
    views.label = part(batch.parts.targets, batch.labels, 1);
  }
  read_sample(index, views);
}

}  // namespace trireme
