// Dynamic loss scaling for float16: small gradients are lifted over the type's smallest number, and a step whose
// gradients overflow is skipped.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/config/config.h"

namespace trireme {

/// A value; part of the checkpoint.
struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  ///< since the last change
  int64_t num_skipped = 0;

  static LossScale of(const PrecisionConfig& config) {
    return {config.compute == "float16" ? config.loss_scale_init : 1, 0, 0};
  }
  /// After a step whose gradients were finite, or not. The scale halves, or doubles after enough good ones.
  void update(bool finite, int64_t growth_every) {
    if (!finite) {
      scale = std::max(scale / 2, 1.0);
      good_steps = 0;
      ++num_skipped;
    } else if (++good_steps >= growth_every) {
      scale = std::min(scale * 2, 16777216.0);
      good_steps = 0;
    }
  }
  bool operator==(const LossScale&) const = default;
};

}  // namespace trireme
