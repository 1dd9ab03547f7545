// What an optimizer does to weights in one step, wherever they are: used by workers and parameter servers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/names.h"

namespace trireme {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW };
constexpr auto names_of(OptimizerKind) { return std::to_array<std::string_view>({"sgd", "adam", "adamw"}); }

/// A plain value. Threads: all; nothing here blocks or fails.
struct UpdateRule {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;

  bool operator==(const UpdateRule&) const = default;

  /// Velocity or Adam's first moment; Adam's second moment. Each is as large as the weights.
  bool has_first() const { return kind != OptimizerKind::kSgd || momentum != 0; }
  bool has_second() const { return kind != OptimizerKind::kSgd; }

  struct Step {
    double factor = 1;  ///< applied to the gradient: average, clipping, loss scale
    double lr = 0;
    int64_t step = 0;    ///< updates before this one, for Adam's bias corrections; skipped steps do not count
    bool decays = true;  ///< whether weight decay applies to these weights
  };
  /// `first` and `second` may be null if the rule has none. One call or several over parts give the same bits.
  void apply(const Step& step, float* weight, const float* gradient, float* first, float* second, size_t count) const;
};

}  // namespace trireme
