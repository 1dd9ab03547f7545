#include "trireme/optimizer/rule.h"

#include <cmath>

#include "trireme/optimizer/kernels.h"

namespace trireme {

void UpdateRule::apply(const Step& step, float* weight, const float* gradient, float* first, float* second,
                       size_t count) const {
  const double decay = step.decays ? weight_decay : 0;
  if (kind == OptimizerKind::kSgd) {
    sgd_update(weight, gradient, first, count,
               {static_cast<float>(step.factor), static_cast<float>(step.lr), static_cast<float>(decay),
                static_cast<float>(momentum), nesterov});
    return;
  }
  const auto t = static_cast<double>(step.step + 1);
  const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
  AdamStep adam;
  adam.factor = static_cast<float>(step.factor);
  adam.lr = static_cast<float>(step.lr / correction1);
  if (kind == OptimizerKind::kAdamW) {
    adam.keep = static_cast<float>(1 - step.lr * decay);
  } else {
    adam.decay = static_cast<float>(decay);
  }
  adam.beta1 = static_cast<float>(beta1);
  adam.beta2 = static_cast<float>(beta2);
  adam.eps = static_cast<float>(eps);
  adam.inverse_root = static_cast<float>(1 / std::sqrt(correction2));
  adam_update(weight, gradient, first, second, count, adam);
}

}  // namespace trireme
