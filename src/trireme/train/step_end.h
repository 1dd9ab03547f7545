// Arithmetic at the end of a step: whether the weights change, how gradients are scaled and clipped, what is reported,
// and the next loss scale. Every update policy uses it, whichever way the sums were made.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/config/config.h"

namespace trireme {

/// Dynamic loss scaling for float16: scales small gradients above the type's smallest number; a step whose gradients
/// overflow is skipped. Saved in checkpoints.
struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  ///< since the last change
  int64_t num_skipped = 0;

  static LossScale of(const PrecisionConfig& config) {
    return {config.compute == NumberType::kFloat16 ? config.loss_scale_init : 1, 0, 0};
  }
  /// Call it after each step; `finite` says whether its gradients were. The scale halves, or doubles after
  /// `growth_every` good steps.
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
  double loss = 0;      ///< sum over micro-batches
  double factor = 1;    ///< factor from summed gradients to averages, with the loss scale divided out
  double own_norm = 0;  ///< norm of the gradients times `factor`: this one is clipped
  double norm = 0;      ///< the same, or the mean over replicas that update alone: this one is reported
  bool stop = false;    ///< some worker was asked to stop
};

struct StepRules {
  /// Which numbers decide whether to update.
  enum class Check : uint8_t {
    kLossAndNorm,
    kNorm,  ///< decided on the device; the host learns the loss later
    kNone,  ///< none: stages are updated in the middle of the step
  };
  double clip = 0;  ///< largest norm; 0: no clipping
  int64_t num_micro_batches = 1;
  bool scales_loss = false;
  int64_t growth_every = 1;  ///< good steps before the loss scale doubles
  Check check = Check::kLossAndNorm;
};

enum class Verdict : uint8_t {
  kUpdate,
  kOverflow,  ///< skipped: the loss scale was too large
  kBad,       ///< skipped: a smaller loss scale would not help
  kSpoiled,   ///< numbers are not finite, but the weights have already been updated
};

struct StepEnd {
  Verdict verdict = Verdict::kUpdate;
  double factor = 1;  ///< scales the gradients in the update; includes clipping
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
