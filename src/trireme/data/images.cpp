#include "trireme/data/images.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {

ImageDataset::ImageDataset(std::vector<ImagePiece> pieces, const SamplePart& part, const ImageShape& shape,
                           const Normalisation& normalisation)
    : pieces_(std::move(pieces)), part_(part), shape_(shape) {
  int64_t end = 0;
  for (const ImagePiece& piece : pieces_) ends_.push_back(end += piece.count);
  if (part.first() < 0 || part.count() < 1 || part.count() > end - part.first()) {
    throw UsageError(
        fmt::format("images {} to {} are not there: there are {}", part.first(), part.first() + part.count() - 1, end));
  }
  const auto channels = static_cast<size_t>(shape.channels);
  if (normalisation.mean.size() != channels || normalisation.deviation.size() != channels) {
    throw UsageError(fmt::format("{} channels need as many means and deviations", shape.channels));
  }
  value_of_.resize(channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t byte = 0; byte < 256; ++byte) {
      value_of_[c][byte] = (static_cast<float>(byte) / 255.0f - normalisation.mean[c]) / normalisation.deviation[c];
    }
  }
}

void ImageDataset::read_sample(int64_t index, const SampleSlot& slot) const {
  const int64_t wanted = part_.at(index);
  const auto place = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), wanted) - ends_.begin());
  const ImagePiece& piece = pieces_[place];
  const int64_t at = wanted - (ends_[place] - piece.count);
  if (piece.prepare) piece.prepare(at);
  if (const auto image = slot.input<float>(); !image.empty()) {
    const uint8_t* pixel = piece.pixels + at * piece.pixel_stride;
    auto out = image.begin();
    for (const auto& value : value_of_) {
      for (int64_t i = 0; i < shape_.height * shape_.width; ++i) *out++ = value[*pixel++];
    }
  }
  if (const auto label = slot.target<int64_t>(); !label.empty()) label[0] = piece.labels[at * piece.label_stride];
}

void check_labels(const ImagePiece& piece, int64_t classes, const std::string& name, int64_t first_byte) {
  for (int64_t i = 0; i < piece.count; ++i) {
    const int64_t label = piece.labels[i * piece.label_stride];
    if (label < classes) continue;
    throw UsageError(fmt::format("{}, byte {}: the label of image {} is {}, but there are classes 0 to {}", name,
                                 first_byte + i * piece.label_stride, format_count(i), label, classes - 1),
                     "the file is damaged, or model.classes is too small");
  }
}

int64_t count_images(const std::vector<ImagePiece>& pieces) {
  int64_t count = 0;
  for (const ImagePiece& piece : pieces) count += piece.count;
  return count;
}

}  // namespace trireme
