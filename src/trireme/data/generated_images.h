// Images made from a seed: ten shapes, moved, scaled, shaded and under noise; learnable in a minute, not trivial.
#pragma once

#include <cstdint>

#include "trireme/data/images.h"

namespace trireme {

/// All that shapes the images; equal values give equal bytes on every machine.
struct GeneratedImageOptions {
  uint64_t seed = 1;
  int64_t num_train = 8192, num_held_out = 1024;
  int64_t channels = 1, height = 28, width = 28;
  int noise = 40;  ///< pixels move by up to ± this, of 255
};

/// Classes in turn (image i has class i mod 10), held-out images numbered after those for training. 10 classes. Each is
/// drawn when it is first read. Throws UsageError for sizes that cannot be.
ImageFiles generate_images(const GeneratedImageOptions& options);

}  // namespace trireme
