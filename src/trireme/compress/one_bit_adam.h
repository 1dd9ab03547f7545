// 1-bit Adam: after a warm-up with Adam itself, ranks exchange signs of their momentum instead of gradients.
//
// In the warm-up, gradients are summed whole and both moments follow them. Then the second moment stands still, so that
// the update is linear in the momentum: each rank adds its own gradient to the momentum, and the momenta are averaged
// by the method "onebit_adam", which keeps what signs lose. The optimizer calls these functions around that exchange:
//
//   step < warm-up:   sum the gradients; adam_step(…) with their average
//   later:            add_to_momentum(own gradient); sum the momenta, divide by ranks; frozen_adam_step(…)
//
// Pure functions on flat arrays; threads: all; nothing blocks. Fails with UsageError where sizes differ.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct OneBitAdamSettings {
  float lr = 1e-3f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;  ///< decoupled, as AdamW's
};

/// A step of the warm-up, `step` counted from 0: AdamW with bias corrections.
void adam_step(const OneBitAdamSettings& settings, uint64_t step, std::span<const float> gradient,
               std::span<float> weight, std::span<float> first, std::span<float> second);

/// momentum = β1 momentum + (1 − β1) gradient.
void add_to_momentum(const OneBitAdamSettings& settings, std::span<const float> gradient, std::span<float> momentum);

/// A later step, from the averaged momentum. `warmup_steps` says how many steps made the second moment; elements that
/// had no gradient in them stay, since their step would have no bound.
void frozen_adam_step(const OneBitAdamSettings& settings, uint64_t warmup_steps, std::span<const float> momentum,
                      std::span<const float> second, std::span<float> weight);

}  // namespace trireme
