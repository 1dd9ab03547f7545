#include "trireme/data/dataset.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

namespace {

std::vector<FieldValues> zeros(const std::vector<Field>& fields, int64_t count, bool is_read) {
  std::vector<FieldValues> all;
  for (const Field& field : fields) {
    const auto size = is_read ? static_cast<size_t>(count * field.count()) : 0;
    if (field.type == Field::Type::kFloat) {
      all.emplace_back(std::vector<float>(size));
    } else {
      all.emplace_back(std::vector<int64_t>(size));
    }
  }
  return all;
}

/// The places of sample `slot` in a batch of `count`.
std::vector<FieldPlace> places(const std::vector<Field>& fields, std::vector<FieldValues>& values, int64_t count,
                               int64_t slot, bool is_read) {
  if (values.size() != fields.size()) {
    throw UsageError(
        fmt::format("a batch has {} fields where {} are needed: it has another shape", values.size(), fields.size()));
  }
  std::vector<FieldPlace> all;
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t length = is_read ? fields[i].count() : 0;
    std::visit(
        [&](auto& numbers) {
          if (numbers.size() != static_cast<size_t>(count * length)) {
            throw UsageError(
                fmt::format("a batch of {} samples holds {} values where {} are needed: it has another shape", count,
                            numbers.size(), count * length));
          }
          all.emplace_back(std::span(numbers).subspan(static_cast<size_t>(slot * length), static_cast<size_t>(length)));
        },
        values[i]);
  }
  return all;
}

}  // namespace

void require_targets(size_t num_targets) {
  if (num_targets > 0) return;
  throw UsageError("a sample needs at least one target",
                   "the loss sees outputs and targets only, so repeat an input as a target");
}

int64_t Field::count() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

SampleShape SampleShape::language(int64_t seq) {
  const Field tokens{Field::Type::kInt64, {seq}};
  return {{tokens}, {tokens}, seq};
}

SampleShape SampleShape::image(int64_t channels, int64_t height, int64_t width) {
  return {{{Field::Type::kFloat, {channels, height, width}}}, {{Field::Type::kInt64, {}}}, 0};
}

Batch::Batch(const SampleShape& shape, int64_t count, SampleParts parts) : count(count), parts(parts) {
  if (count < 0) throw UsageError(fmt::format("a batch of {} samples cannot be", count));
  inputs = zeros(shape.inputs, count, parts.inputs);
  targets = zeros(shape.targets, count, parts.targets);
}

void Dataset::read(int64_t index, Batch& batch, int64_t slot) const {
  if (index < 0 || index >= size()) {
    throw UsageError(fmt::format("sample {} is not there: the dataset has 0 to {}", index, size() - 1));
  }
  if (slot < 0 || slot >= batch.count) {
    throw UsageError(fmt::format("place {} is not there: the batch has {}", slot, batch.count));
  }
  const SampleShape& shape = this->shape();
  read_sample(index, {places(shape.inputs, batch.inputs, batch.count, slot, batch.parts.inputs),
                      places(shape.targets, batch.targets, batch.count, slot, batch.parts.targets)});
}

}  // namespace trireme
