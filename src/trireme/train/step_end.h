// The end of a step as arithmetic: whether the weights change, by what factor gradients are scaled and clipped, what is
// reported, and the next loss scale. Every update policy decides here, whoever has made the sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/config/config.h"

namespace trireme {

/// Dynamic loss scaling for float16: small gradients are lifted over the type's smallest number, and a step whose
/// gradients overflow is skipped. A part of the checkpoint.
struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  ///< since the last change
  int64_t num_skipped = 0;

  static LossScale of(const PrecisionConfig& config) {
    return {config.compute == NumberType::kFloat16 ? config.loss_scale_init : 1, 0, 0};
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

/// Sums over all ranks of the model, the same on each.
struct StepSums {
  double loss = 0;      ///< sum of the micro-batches' losses
  double factor = 1;    ///< from summed gradients to averages, without the loss scale
  double own_norm = 0;  ///< norm of the gradients times `factor`: the one that is clipped
  double norm = 0;      ///< the same, or the mean over replicas that update alone: the one that is reported
  bool stop = false;    ///< some worker was asked to stop
};

struct StepRules {
  /// Which numbers an update waits for.
  enum class Check : uint8_t {
    kLossAndNorm,
    kNorm,  ///< the device decides, and the host learns the loss later
    kNone,  ///< stages are updated in the middle of the step
  };
  double clip = 0;  ///< largest norm; 0: gradients are not clipped
  int64_t num_micro_batches = 1;
  bool scales_loss = false;
  int64_t growth_every = 1;  ///< good steps until the loss scale doubles
  Check check = Check::kLossAndNorm;
};

enum class Verdict : uint8_t {
  kUpdate,
  kOverflow,  ///< skipped: the loss scale was too large
  kBad,       ///< skipped: a smaller loss scale would not help
  kSpoiled,   ///< numbers are not finite, and the weights were updated before anybody knew
};

struct StepEnd {
  Verdict verdict = Verdict::kUpdate;
  double factor = 1;  ///< of the gradients in the update, with clipping
  double loss = 0;    ///< mean over micro-batches
  double gradient_norm = 0;
  bool stop = false;
  bool loss_is_finite = true;
  LossScale loss_scale;

  bool updates() const { return verdict == Verdict::kUpdate || verdict == Verdict::kSpoiled; }
  bool is_bad() const { return verdict == Verdict::kBad || verdict == Verdict::kSpoiled; }
};

StepEnd decide(const StepSums& sums, const LossScale& loss_scale, const StepRules& rules);

}  // namespace trireme
