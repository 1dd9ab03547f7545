// Samples by number: what every source of training data gives, whatever its files look like.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace trireme {

/// One tensor of a sample.
struct Field {
  enum class Type : uint8_t { kFloat, kInt64 };
  Type type = Type::kFloat;
  std::vector<int64_t> sizes;  ///< none: a number

  int64_t count() const;
  bool operator==(const Field&) const = default;
};

/// What one sample is: what a model is given, and what its loss compares with.
struct SampleShape {
  std::vector<Field> inputs, targets;
  int64_t seq = 0;  ///< of language: its tokens

  /// `seq` tokens with as many targets.
  static SampleShape language(int64_t seq);
  /// An image of floats with one label.
  static SampleShape image(int64_t channels, int64_t height, int64_t width);
  bool is_language() const { return seq > 0; }
  bool operator==(const SampleShape&) const = default;
};

/// Throws UsageError for samples of 0 targets, on which nothing can be trained.
void require_targets(size_t num_targets);

/// What of a sample is read: the first stage of a pipeline needs no targets, the last one nothing else.
struct SampleParts {
  bool inputs = true, targets = true;
  bool operator==(const SampleParts&) const = default;
};

using FieldValues = std::variant<std::vector<float>, std::vector<int64_t>>;
using FieldPlace = std::variant<std::span<float>, std::span<int64_t>>;

/// Samples one after the other, field by field. Fields of parts that are not read are empty.
struct Batch {
  int64_t count = 0;
  SampleParts parts = {};
  std::vector<FieldValues> inputs, targets;

  Batch() = default;
  Batch(const SampleShape& shape, int64_t count, SampleParts parts = {});  ///< all zero
  template <typename T>
  const std::vector<T>& input(size_t field = 0) const {
    return std::get<std::vector<T>>(inputs.at(field));
  }
  template <typename T>
  const std::vector<T>& target(size_t field = 0) const {
    return std::get<std::vector<T>>(targets.at(field));
  }
  bool operator==(const Batch&) const = default;
};

/// Where one sample is to be written: views of exactly the sizes of the shape, or empty where a part is not wanted.
struct SampleSlot {
  std::vector<FieldPlace> inputs, targets;

  template <typename T>
  std::span<T> input(size_t field = 0) const {
    return std::get<std::span<T>>(inputs.at(field));
  }
  template <typename T>
  std::span<T> target(size_t field = 0) const {
    return std::get<std::span<T>>(targets.at(field));
  }
};

/// Immutable. Threads: reads from any number at once. A read may wait for the disk. Owners share it by shared_ptr.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  ///< samples, at least 1
  virtual SampleShape shape() const = 0;
  /// The batch's parts of sample `index` into place `slot` of a batch of this shape. Throws UsageError where one of
  /// them is out of range.
  void read(int64_t index, Batch& batch, int64_t slot) const;

 protected:
  /// `index` is in range, the views have the sizes of the shape or are empty.
  virtual void read_sample(int64_t index, const SampleSlot& slot) const = 0;
};

}  // namespace trireme
