#include "trireme/train/step_end.h"

#include <cmath>

namespace trireme {
namespace {

Verdict verdict_of(const StepSums& sums, const LossScale& loss_scale, const StepRules& rules) {
  const bool loss_is_finite = std::isfinite(sums.loss), norm_is_finite = std::isfinite(sums.norm);
  if (norm_is_finite && (loss_is_finite || rules.check == StepRules::Check::kNorm)) return Verdict::kUpdate;
  if (rules.check == StepRules::Check::kNone) return Verdict::kSpoiled;
  return rules.scales_loss && loss_is_finite && loss_scale.scale > 1 ? Verdict::kOverflow : Verdict::kBad;
}

}  // namespace

StepEnd decide(const StepSums& sums, const LossScale& loss_scale, const StepRules& rules) {
  StepEnd end;
  end.verdict = verdict_of(sums, loss_scale, rules);
  const bool clips = rules.clip > 0 && sums.own_norm > rules.clip;
  end.factor = clips ? sums.factor * rules.clip / sums.own_norm : sums.factor;
  end.loss = sums.loss / static_cast<double>(rules.num_micro_batches);
  end.gradient_norm = sums.norm;
  end.stop = sums.stop;
  end.loss_is_finite = std::isfinite(sums.loss);
  end.loss_scale = loss_scale;
  if (rules.scales_loss && !end.is_bad()) {
    end.loss_scale.update(end.verdict == Verdict::kUpdate, rules.growth_every);
  }
  return end;
}

}  // namespace trireme
