#include "trireme/data/generated_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

constexpr int64_t kShapes = 10;

/// Whether the shape of class `kind` covers (x, y) of the square -64 … 64. Whole numbers only, so that every machine
/// draws the same.
bool covers(int64_t kind, int x, int y) {
  const int ax = std::abs(x), ay = std::abs(y), larger = std::max(ax, ay), round = x * x + y * y;
  switch (kind) {
    case 0:
      return round <= 60 * 60;  // disc
    case 1:
      return round <= 60 * 60 && round >= 38 * 38;  // ring
    case 2:
      return larger <= 52;  // square
    case 3:
      return larger <= 56 && larger >= 36;  // frame
    case 4:
      return larger <= 60 && std::min(ax, ay) <= 14;  // plus
    case 5:
      return larger <= 60 && std::abs(ax - ay) <= 16;  // cross
    case 6:
      return ay <= 58 && 2 * ax <= y + 60;  // triangle, point up
    case 7:
      return ay <= 60 && (y + 64) / 16 % 2 == 0 && ax <= 60;  // stripes across
    case 8:
      return ax <= 60 && (x + 64) / 16 % 2 == 0 && ay <= 60;  // stripes down
    default:
      return ax + ay <= 64;  // diamond
  }
}

struct Drawing {
  int64_t channels, height, width;
  int noise;
  int64_t num_pixels() const { return channels * height * width; }
};

void draw(const Drawing& d, const Philox& philox, int64_t index, uint8_t* out) {
  const Philox self(philox(static_cast<uint64_t>(index))[0] | uint64_t{philox(static_cast<uint64_t>(index))[1]} << 32,
                    "image");
  const auto between = [&](int64_t low, int64_t high, uint64_t element) {
    return low + static_cast<int64_t>(self.below(static_cast<uint64_t>(high - low + 1), element));
  };
  const int64_t side = std::min(d.height, d.width), kind = index % kShapes;
  const int64_t size = std::max<int64_t>(between(side / 2, side * 4 / 5, 0), 1);
  const int64_t left = between(0, d.width - size, 1), top = between(0, d.height - size, 2);
  // The middle of a pixel, in units of 1/64 of half the shape.
  const auto middles = [&](int64_t length, int64_t start) {
    std::vector<int> at(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i)
      at[static_cast<size_t>(i)] = static_cast<int>((2 * (i - start) + 1) * 64 / size - 64);
    return at;
  };
  const std::vector<int> us = middles(d.width, left), vs = middles(d.height, top);
  for (int64_t c = 0; c < d.channels; ++c) {
    const int64_t ink = between(140, 230, 3 + static_cast<uint64_t>(c)),
                  paper = between(20, 70, 103 + static_cast<uint64_t>(c));
    for (int64_t y = 0; y < d.height; ++y) {
      for (int64_t x = 0; x < d.width; ++x) {
        const bool inside = x >= left && x < left + size && y >= top && y < top + size &&
                            covers(kind, us[static_cast<size_t>(x)], vs[static_cast<size_t>(y)]);
        *out++ = static_cast<uint8_t>(inside ? ink : paper);
      }
    }
  }
  uint8_t* const first = out - d.channels * d.height * d.width;
  for (int64_t i = 0; i < out - first; i += 16) {  // 16 bytes of noise a draw
    const PhiloxCounter words = self(1000 + static_cast<uint64_t>(i / 16));
    for (int64_t k = 0; k < std::min<int64_t>(16, out - first - i); ++k) {
      const auto byte = static_cast<int>(words[static_cast<size_t>(k / 4)] >> (8 * (k % 4)) & 0xff);
      const int moved = first[i + k] + (byte * (2 * d.noise + 1) >> 8) - d.noise;
      first[i + k] = static_cast<uint8_t>(std::clamp(moved, 0, 255));
    }
  }
}

/// Each image with its label in front, as CIFAR has it, in one block of memory, whose pages the system gives when they
/// are written: thousands of large images take a minute to draw, and a short run reads few of them.
class DrawnWhenRead {
 public:
  DrawnWhenRead(const Drawing& drawing, const Philox& philox, int64_t first, int64_t count)
      : drawing_(drawing),
        philox_(philox),
        first_(first),
        bytes_(std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(count * (drawing.num_pixels() + 1)))),
        drawn_(std::make_unique<std::once_flag[]>(static_cast<size_t>(count))) {}
  const uint8_t* data() const { return bytes_.get(); }
  void prepare(int64_t i) {
    std::call_once(drawn_[static_cast<size_t>(i)], [&] {
      uint8_t* const record = bytes_.get() + i * (drawing_.num_pixels() + 1);
      record[0] = static_cast<uint8_t>((first_ + i) % kShapes);
      draw(drawing_, philox_, first_ + i, record + 1);
    });
  }

 private:
  const Drawing drawing_;
  const Philox philox_;
  const int64_t first_;
  const std::unique_ptr<uint8_t[]> bytes_;
  const std::unique_ptr<std::once_flag[]> drawn_;
};

void check(const GeneratedImageOptions& o) {
  const auto need = [](const char* what, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      throw UsageError(fmt::format("generated images: {} = {} must be from {} to {}", what, value, low, high));
    }
  };
  need("channels", o.channels, 1, 64);
  need("height", o.height, 8, 1024);
  need("width", o.width, 8, 1024);
  need("noise", o.noise, 0, 127);
  need("images for training", o.num_train, 1, int64_t{1} << 24);
  need("held-out images", o.num_held_out, 1, int64_t{1} << 24);
}

}  // namespace

ImageFiles generate_images(const GeneratedImageOptions& options) {
  check(options);
  const Drawing drawing{options.channels, options.height, options.width, options.noise};
  const Philox philox(options.seed, "generated images");
  const int64_t num_pixels = drawing.num_pixels();
  const auto make = [&](int64_t first, int64_t count) {
    auto images = std::make_shared<DrawnWhenRead>(drawing, philox, first, count);
    const uint8_t* const data = images->data();
    const auto prepare = [images = images.get()](int64_t i) { images->prepare(i); };
    return ImagePiece{std::move(images), nullptr, data + 1, data, count, num_pixels + 1, num_pixels + 1, prepare};
  };
  ImageFiles files;
  files.shape = ImageShape{options.channels, options.height, options.width};
  const auto channels = static_cast<size_t>(options.channels);
  // Close to the mean and deviation of what is drawn above.
  files.normalisation = {std::vector<float>(channels, 0.28f), std::vector<float>(channels, 0.24f)};
  files.classes = kShapes;
  files.format = "generated shapes";
  files.train.push_back(make(0, options.num_train));
  files.held_out.push_back(make(options.num_train, options.num_held_out));
  return files;
}

}  // namespace trireme
