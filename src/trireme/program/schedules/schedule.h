// Pipeline schedules: functions that give each rank its order of computations. Everything else follows from the order:
// lower_pipeline() (program/pipeline.h) adds messages, sums and updates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/program/times.h"

namespace trireme {

/// Which version of the weights a computation uses if updates happen while micro-batches are in flight.
enum class WeightRule {
  kNewest,        ///< one update, at the end: all micro-batches use the same weights
  kStash,         ///< the newest version at the forward pass, and the same in the backward pass (PipeDream)
  kVerticalSync,  ///< the version that the first stage used, in all stages (PipeDream with vertical sync)
  kDoubleBuffer,  ///< micro-batches of update u use version max(u - 1, 0): at most two versions (PipeDream-2BW)
};

/// A plain value. Micro-batches are those of one replica, numbered from 0.
struct Schedule {
  int num_ranks = 1;
  int num_micro_batches = 1;
  std::vector<int> rank_of_stage = {};
  /// Each rank's computations in order: kForward, and kBackward or kBackwardInput and kWeightGrad, with stage and
  /// micro_batch. May include sends and receives, where a schedule places them itself.
  std::vector<std::vector<Instruction>> ranks = {};
  WeightRule weights = WeightRule::kNewest;
  int update_every = 0;  ///< micro-batches per weight update; 0: all

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  std::vector<int> stages_of(int rank) const;  ///< the stages of a rank, in increasing order
  int micro_batches_in_update() const { return update_every == 0 ? num_micro_batches : update_every; }
  bool has_messages() const;
  bool operator==(const Schedule&) const = default;
};

enum class ScheduleKind {
  kNaive,           ///< one micro-batch at a time
  kGPipe,           ///< all forward, then all backward
  k1F1B,            ///< one forward, one backward: holds no more activations than there are stages to come
  kInterleaved,     ///< 1F1B with several stages per rank
  kZbH1,            ///< zero bubble in 1F1B's memory: weight gradients fill the idle time at the end
  kZbH2,            ///< zero bubble in twice that memory: more forward passes also fill the start
  kZbV,             ///< two stages per rank, placed down the ranks and up again, in 1F1B's memory
  kPipeDream,       ///< 1F1B without flushes; weights are updated after each micro-batch
  kPipeDreamSync,   ///< PipeDream with vertical sync
  kPipeDream2Bw,    ///< 1F1B without flushes; an update after several micro-batches, two weight versions
  kPipeDreamFlush,  ///< 1F1B with a flush before each update: the order of k1F1B
};

/// The rank of each stage.
enum class StagePlacement {
  kRounds,  ///< round-robin: stage s is on rank s mod num_ranks
  kV,       ///< two stages per rank, down the ranks and up again: the first and the last are on rank 0
};

/// All kinds, in the order above.
const std::vector<ScheduleKind>& schedule_kinds();
/// "1f1b", "zb-h1", …
std::string_view name_of(ScheduleKind kind);
/// The names that schedule_kind() accepts: one per kind, and "interleaved", short for "interleaved-1f1b".
std::vector<std::string_view> schedule_names();
/// The kind of a name. Throws UsageError that proposes the nearest name.
ScheduleKind schedule_kind(std::string_view name);
WeightRule weight_rule(ScheduleKind kind);
/// Whether there is one update, at the end (WeightRule::kNewest): results are bit-equal to training without a pipeline.
bool is_synchronous(ScheduleKind kind);
/// Whether weight gradients are computed separately from gradients of inputs.
bool splits_backward(ScheduleKind kind);
StagePlacement placement_of(ScheduleKind kind);
/// Whether ScheduleShape::times changes the order.
bool depends_on_times(ScheduleKind kind);
/// Whether the number of stages per rank can be chosen.
bool takes_interleave(ScheduleKind kind);
/// Stages per rank: `interleave`, where it is more than 1, otherwise the kind's default.
int stages_per_rank(ScheduleKind kind, int64_t interleave = 1);
/// Turns k1F1B with interleave > 1 into kInterleaved; returns other kinds unchanged.
ScheduleKind with_interleave(ScheduleKind kind, int64_t interleave);

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int num_ranks = 1;
  int num_micro_batches = 1;  ///< micro-batches of one replica
  int interleave = 0;         ///< stages per rank, where takes_interleave(); 0: the kind's default
  int update_every = 0;       ///< micro-batches per update; 0: by weight_rule(), all for kNewest, enough to fill the
                              ///< pipeline for kDoubleBuffer, otherwise 1
  /// Times that kinds with depends_on_times() optimize for: one for all, one per rank or stage; empty: all equal.
  StageTimes times = {};
};

/// Throws UsageError for a shape out of range.
Schedule make_schedule(const ScheduleShape& shape);

/// Rank of each stage.
std::vector<int> place_in_rounds(int num_ranks, int stages_per_rank);
std::vector<int> place_in_v(int num_ranks);

/// The orders of one rank. Without `interleave`, a rank holds one stage, numbered like the rank.
std::vector<Instruction> order_naive(int rank, int num_micro_batches);
std::vector<Instruction> order_gpipe(int rank, int num_micro_batches);
/// `most_in_flight`: the largest number of micro-batches between their forward and backward passes, which is also the
/// length of the warm-up; num_ranks - rank in 1F1B. Clamped to `num_micro_batches`.
std::vector<Instruction> order_1f1b(int rank, int num_micro_batches, int most_in_flight);
std::vector<Instruction> order_interleaved(int rank, int num_ranks, int num_micro_batches, int interleave);
/// 1F1B with weight gradients split off: the first one follows `delay` + 1 backward passes for inputs.
std::vector<Instruction> order_zero_bubble(int rank, int num_micro_batches, int most_in_flight, int delay);
/// The orders of all ranks. `times`: one value per stage; see [Note: ZB-V].
std::vector<std::vector<Instruction>> orders_zero_bubble_v(int num_ranks, int num_micro_batches,
                                                           const StageTimes& times);

}  // namespace trireme
