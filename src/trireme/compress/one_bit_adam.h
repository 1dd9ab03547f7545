// 1-bit Adam: after a warm-up with Adam itself, ranks exchange signs of their momentum instead of gradients.
//
// In the warm-up, gradients are summed whole and both moments follow them. Then the second moment stands still, so that
// the update is linear in the momentum: each rank adds its own gradient to the momentum, and the momenta are averaged
// by the method "onebit_adam", which keeps what signs lose. The optimizer calls these functions around that exchange:
//
//   step < warm-up:   sum the gradients; a step of Adam with their average
//   later:            to_moves(own part of the average); sum over ranks; to_momentum(…), frozen_adam_step(…)
//
// [Note: Moves]
// Signs have one size a block. Steps of Adam are of about one size, momenta are not: the row of a rare word has a
// thousandth of its neighbour's. So what travels is the momentum divided by the root of the second moment, which all
// ranks know; as that stands still, what is kept stays in step with it.
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

/// After the warm-up weights move by momentum / (√second · factor + eps). The factor; throws UsageError where the
/// warm-up has no steps.
float root_factor(const OneBitAdamSettings& settings, uint64_t warmup_steps);

/// A later step: of the moves (momentum by the root of the second moment) that weights will make, this rank's part of a
/// sum over `num_ranks`. `values` hold the rank's part of the averaged gradient before. `warmup_steps` says how many
/// steps made the second moment; elements that had no gradient in them stay, since their moves would have no bound.
void to_moves(const OneBitAdamSettings& settings, uint64_t warmup_steps, int num_ranks, std::span<float> values,
              std::span<const float> momentum, std::span<const float> second);

/// From the sum over ranks: the next momentum; and the weights.
void to_momentum(const OneBitAdamSettings& settings, uint64_t warmup_steps, std::span<const float> moves,
                 std::span<const float> second, std::span<float> momentum);
void frozen_adam_step(const OneBitAdamSettings& settings, std::span<const float> moves, std::span<const float> second,
                      std::span<float> weight);

}  // namespace trireme
