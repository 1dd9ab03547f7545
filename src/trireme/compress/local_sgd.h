// Ranks that step alone and meet now and then: local SGD, post-local SGD, and DiLoCo's outer optimizer.
//
// Owner: the trainer. Threads: one. Blocking and failure: as the communicator, in the steps at which ranks meet. All
// ranks call with the same step numbers.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/compress/block_sum.h"
#include "trireme/compress/state.h"

namespace trireme {

/// When ranks meet: after every step before `local_after` (post-local SGD; 0 for local SGD), then after every
/// `every`-th.
struct MeetingPlan {
  uint64_t every = 1;
  uint64_t local_after = 0;

  /// Throws UsageError for `every` = 0.
  void check() const;
  /// Whether ranks meet after this step, counted from 0.
  bool meets_after(uint64_t step) const;
};

/// Averages parameters over ranks after the steps of a plan. Returns whether it did.
class LocalSgd {
 public:
  LocalSgd(Communicator& comm, const MeetingPlan& plan);
  bool after_step(uint64_t step, std::span<float> parameters);
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Communicator& comm_;
  MeetingPlan plan_;
  uint64_t bytes_sent_ = 0;
};

struct DiLoCoOptions {
  MeetingPlan plan{500, 0};
  float lr = 0.7f;        ///< of the outer optimizer
  float momentum = 0.9f;  ///< Nesterov's
  /// How the outer gradient travels; unset: whole. What the format rounds away is kept for the next meeting.
  std::optional<BlockFormat> format = std::nullopt;
  uint64_t seed = 0;
};

/// The way from where ranks last met is a gradient for an outer optimizer, whose step is where all go on from.
class DiLoCo {
 public:
  /// Collective. `parameters` are where all ranks begin, and the same on all; `layout` names them for what is saved.
  DiLoCo(Communicator& comm, const DiLoCoOptions& options, GroupLayout layout, std::span<const float> parameters);

  /// Returns whether ranks met; then `parameters` are the same on all ranks.
  bool after_step(uint64_t step, std::span<float> parameters);

  /// Replicated and per rank: [Note: Residuals].
  StatePieces save() const;
  void load(std::span<const StatePieces> by_rank);
  uint64_t bytes_sent() const { return bytes_sent_ + (blocks_ ? blocks_->bytes_sent() : 0); }

 private:
  void average(std::span<float> delta, uint64_t step);

  Communicator& comm_;
  DiLoCoOptions options_;
  GroupLayout layout_;
  std::vector<float> anchor_;       ///< where ranks last met
  std::vector<float> momentum_;     ///< of the outer optimizer
  std::optional<BlockSum> blocks_;  ///< with a format
  uint64_t bytes_sent_ = 0;
};

/// The outer step on its own: momentum = μ momentum + delta; anchor −= lr (delta + μ momentum). `delta` is anchor minus
/// the average of the ranks' parameters.
void diloco_outer_step(float lr, float momentum_factor, std::span<const float> delta, std::span<float> momentum,
                       std::span<float> anchor);

}  // namespace trireme
