// Samples by number: what every source of training data gives, whatever its files look like.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

/// What one sample is: `seq` tokens with as many targets, or an image of floats with one label.
struct SampleShape {
  int64_t seq = 0;  ///< 0: images
  int64_t channels = 0, height = 0, width = 0;

  static SampleShape language(int64_t seq) { return {seq, 0, 0, 0}; }
  static SampleShape image(int64_t channels, int64_t height, int64_t width) { return {0, channels, height, width}; }
  bool is_language() const { return seq > 0; }
  int64_t num_pixels() const { return channels * height * width; }  ///< all channels
  bool operator==(const SampleShape&) const = default;
};

/// What of a sample is read: the first stage of a pipeline needs no targets, the last one nothing else.
struct SampleParts {
  bool inputs = true, targets = true;  ///< tokens or image; targets or label
  bool operator==(const SampleParts&) const = default;
};

/// Samples one after the other. Language fills tokens and targets, images fill images and labels; the rest, and parts
/// that are not read, are empty.
struct Batch {
  int64_t count = 0;
  SampleParts parts = {};
  std::vector<int64_t> tokens, targets;  ///< count × seq
  std::vector<float> images;             ///< count × channels × height × width
  std::vector<int64_t> labels;           ///< count

  Batch() = default;
  Batch(const SampleShape& shape, int64_t count, SampleParts parts = {});  ///< all zero
  bool operator==(const Batch&) const = default;
};

/// Where one sample is to be written: views of exactly the sizes of the shape, or empty where a part is not wanted.
struct SampleSlot {
  std::span<int64_t> tokens, targets;
  std::span<float> image;
  std::span<int64_t> label;
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
