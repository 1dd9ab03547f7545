// Images of bytes with labels, in one or many pieces, as normalised floats.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/split.h"

namespace trireme {

/// Images that lie at equal distances, channel by channel, row by row, as their labels do.
struct ImagePiece {
  std::shared_ptr<const void> owner, label_owner;  ///< keep the two pointers alive
  const uint8_t* pixels = nullptr;
  const uint8_t* labels = nullptr;
  int64_t count = 0;
  int64_t pixel_stride = 0, label_stride = 1;  ///< bytes from one image or label to the next
  /// Called before image i of the piece is read, label included; null: all are there. Threads: any number at once.
  std::function<void(int64_t i)> prepare = nullptr;
};

/// Of pixels in 0 … 1, for each channel.
struct Normalisation {
  std::vector<float> mean, deviation;
};

struct ImageShape {
  int64_t channels = 0, height = 0, width = 0;
  int64_t num_pixels() const { return channels * height * width; }  ///< all channels
  bool operator==(const ImageShape&) const = default;
};

/// Immutable. Threads: all.
class ImageDataset : public Dataset {
 public:
  /// `part` counts over all pieces and has at least one image; all are there.
  ImageDataset(std::vector<ImagePiece> pieces, const SamplePart& part, const ImageShape& shape,
               const Normalisation& normalisation);
  int64_t size() const override { return part_.count(); }
  SampleShape shape() const override { return SampleShape::image(shape_.channels, shape_.height, shape_.width); }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override;

 private:
  std::vector<ImagePiece> pieces_;
  std::vector<int64_t> ends_;
  SamplePart part_;
  ImageShape shape_;
  std::vector<std::array<float, 256>> value_of_;  ///< for each channel, what a byte stands for
};

/// What a folder of images holds.
struct ImageFiles {
  std::vector<ImagePiece> train, held_out;  ///< held_out is empty where there are no test files
  ImageShape shape;
  Normalisation normalisation;
  int64_t classes = 10;
  std::string format;  ///< "MNIST", …
};

/// The first label of `classes` or more: UsageError naming `name` and the byte, `first_byte` being that of label 0.
void check_labels(const ImagePiece& piece, int64_t classes, const std::string& name, int64_t first_byte);

int64_t count_images(const std::vector<ImagePiece>& pieces);

}  // namespace trireme
