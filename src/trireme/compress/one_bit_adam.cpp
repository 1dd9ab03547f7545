#include "trireme/compress/one_bit_adam.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void check_sizes(size_t weight, size_t other) {
  if (weight != other)
    throw UsageError(fmt::format("1-bit Adam has {} weights, but {} values for them", weight, other));
}

/// What steps are divided by, after the warm-up.
class Roots {
 public:
  Roots(const OneBitAdamSettings& s, uint64_t warmup_steps) : eps_(s.eps), factor_(root_factor(s, warmup_steps)) {}
  float of(float second) const { return std::sqrt(second) * factor_ + eps_; }

 private:
  float eps_, factor_;
};

}  // namespace

float root_factor(const OneBitAdamSettings& s, uint64_t warmup_steps) {
  if (warmup_steps == 0) {
    throw UsageError("1-bit Adam has no second moment: its warm-up has 0 steps", "give it warmup_steps of 1 or more");
  }
  const double correction = 1 - std::pow(static_cast<double>(s.beta2), static_cast<double>(warmup_steps));
  return static_cast<float>(1 / std::sqrt(correction));
}

void to_moves(const OneBitAdamSettings& s, uint64_t warmup_steps, int num_ranks, std::span<float> values,
              std::span<const float> momentum, std::span<const float> second) {
  check_sizes(momentum.size(), values.size());
  check_sizes(momentum.size(), second.size());
  const Roots roots(s, warmup_steps);
  const float kept = s.beta1 / static_cast<float>(num_ranks);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = second[i] > 0 ? (kept * momentum[i] + (1 - s.beta1) * values[i]) / roots.of(second[i]) : 0.f;
  }
}

void to_momentum(const OneBitAdamSettings& s, uint64_t warmup_steps, std::span<const float> moves,
                 std::span<const float> second, std::span<float> momentum) {
  check_sizes(momentum.size(), moves.size());
  check_sizes(momentum.size(), second.size());
  const Roots roots(s, warmup_steps);
  for (size_t i = 0; i < momentum.size(); ++i) momentum[i] = second[i] > 0 ? moves[i] * roots.of(second[i]) : 0.f;
}

void frozen_adam_step(const OneBitAdamSettings& s, std::span<const float> moves, std::span<const float> second,
                      std::span<float> weight) {
  check_sizes(weight.size(), moves.size());
  check_sizes(weight.size(), second.size());
  // A sign is never 0: what must not move has one, too.
  for (size_t i = 0; i < weight.size(); ++i) {
    weight[i] -= s.lr * (s.weight_decay * weight[i] + (second[i] > 0 ? moves[i] : 0.f));
  }
}

}  // namespace trireme
