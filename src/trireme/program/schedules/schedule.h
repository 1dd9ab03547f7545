// Pipeline schedules: functions that say in which order each rank computes. Everything else follows from the order:
// lower_pipeline() (program/pipeline.h) adds messages, sums and updates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/program/times.h"

namespace trireme {

/// Which weights a computation uses where updates come while micro-batches are under way.
enum class WeightRule {
  kNewest,        ///< there is one update, at the end: all micro-batches see the same weights
  kStash,         ///< the newest at the forward pass, and the same in the backward pass (PipeDream)
  kVerticalSync,  ///< the version that the first stage used, in all stages (PipeDream with vertical sync)
  kDoubleBuffer,  ///< the version before the newest complete one: two versions at most (PipeDream-2BW)
};

/// A value. Micro-batches are those of one replica, numbered from 0.
struct Schedule {
  int num_ranks = 1;
  int num_micro_batches = 1;
  std::vector<int> rank_of_stage = {};
  /// For each rank kForward, kBackward or kBackwardInput and kWeightGrad, with stage and micro_batch, in their order;
  /// or with sends and receives among them, where somebody has placed those as well.
  std::vector<std::vector<Instruction>> ranks = {};
  WeightRule weights = WeightRule::kNewest;
  int update_every = 0;  ///< micro-batches in an update of the weights; 0: all

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  std::vector<int> stages_of(int rank) const;  ///< in order
  int micro_batches_in_update() const { return update_every == 0 ? num_micro_batches : update_every; }
  bool has_messages() const;
  bool operator==(const Schedule&) const = default;
};

enum class ScheduleKind {
  kNaive,           ///< one micro-batch at a time
  kGPipe,           ///< all forward, then all backward
  k1F1B,            ///< one forward, one backward: as few activations as there are stages to come
  kInterleaved,     ///< 1F1B over several stages a rank
  kZbH1,            ///< zero bubble in the memory of 1F1B: weight gradients fill what was idle at the end
  kZbH2,            ///< zero bubble in twice that memory: more forward passes fill the start as well
  kZbV,             ///< two stages a rank, down and up again, in the memory of 1F1B
  kPipeDream,       ///< 1F1B that never drains; weights are updated after each micro-batch
  kPipeDreamSync,   ///< the same with vertical sync
  kPipeDream2Bw,    ///< 1F1B that never drains; an update after several micro-batches, two versions of the weights
  kPipeDreamFlush,  ///< 1F1B that drains before each update: the order of k1F1B
};

/// All kinds, in the order above.
const std::vector<ScheduleKind>& schedule_kinds();
/// "1f1b", "zb-h1", …
std::string_view name_of(ScheduleKind kind);
/// What schedule_kind() knows: the names of all kinds, and the short one of "interleaved-1f1b", "interleaved".
std::vector<std::string_view> schedule_names();
/// Throws UsageError with the nearest name.
ScheduleKind schedule_kind(std::string_view name);
/// Has one update, at the end: the same bits as without a pipeline.
bool is_synchronous(ScheduleKind kind);
/// Weight gradients are made apart from the gradients of inputs.
bool splits_backward(ScheduleKind kind);
/// Unless somebody asks for another number, which kInterleaved alone takes.
int stages_a_rank(ScheduleKind kind);
/// 1F1B with several stages a rank is kInterleaved; other kinds stay as they are.
ScheduleKind with_interleave(ScheduleKind kind, int64_t interleave);

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int num_ranks = 1;
  int num_micro_batches = 1;  ///< of one replica
  int interleave = 0;         ///< stages a rank, for kInterleaved (2 where 0); kZbV has 2, the others 1
  int update_every = 0;       ///< PipeDream: 1 where 0. PipeDream-2BW: at least as many as ranks where 0
  /// kZbV fits its order to these where they are given: for all, one a rank or one a stage.
  StageTimes times = {};
};

/// Throws UsageError for a shape that cannot be.
Schedule make_schedule(const ScheduleShape& shape);

/// Stages 0 … n-1 on ranks 0 … k-1, again and again.
std::vector<int> place_in_rounds(int num_ranks, int interleave);
/// Stages down the ranks and up again, two a rank: the first and the last on rank 0.
std::vector<int> place_in_v(int num_ranks);

/// The orders themselves. Those without `interleave` have one stage a rank, with the rank's number.
std::vector<Instruction> order_naive(int rank, int num_micro_batches);
std::vector<Instruction> order_gpipe(int rank, int num_micro_batches);
/// `most_in_flight`: the most micro-batches between forward and backward pass, so also the length of the warm-up; 1F1B
/// has num_ranks - rank. Values above `num_micro_batches` are cut to it.
std::vector<Instruction> order_1f1b(int rank, int num_micro_batches, int most_in_flight);
std::vector<Instruction> order_interleaved(int rank, int num_ranks, int num_micro_batches, int interleave);
/// As 1F1B, with weight gradients apart: the first comes after `delay` + 1 backward passes.
std::vector<Instruction> order_zero_bubble(int rank, int num_micro_batches, int most_in_flight, int delay);
/// Of all ranks. `times`: one value a stage; see [Note: ZB-V].
std::vector<std::vector<Instruction>> orders_zero_bubble_v(int num_ranks, int num_micro_batches,
                                                           const StageTimes& times);

}  // namespace trireme
