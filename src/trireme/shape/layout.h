// How a training is cut: degrees, stages, schedule, batch, ZeRO, recomputation, types. One value, which the config's
// checks make, and which trainer, programs, simulator and planner take.
//
// A plain value without the model. layout_of() (config/layout_of.h) makes it from keys, keys_of() there gives the keys
// of it; check() says what cannot be cut that way, whoever has made it. Threads: all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/number_type.h"
#include "trireme/compress/method.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/step.h"

namespace trireme {

enum class RecomputeKind { kNone, kSelective, kFull };

/// What the backward pass computes again instead of keeping it.
struct Recompute {
  RecomputeKind kind = RecomputeKind::kNone;             ///< selective: the attention of every block
  std::vector<std::pair<int64_t, int64_t>> ranges = {};  ///< beside that, whole layers by number, first and last

  Recompute() = default;
  Recompute(RecomputeKind of_all) : kind(of_all) {}  // NOLINT: the usual case
  bool covers(int64_t layer) const;
  /// The largest number that is named, or -1.
  int64_t last() const;
  /// As train.recompute says it: "none", "full", "selective", "0-3,7".
  std::string to_string() const;
  bool operator==(const Recompute&) const = default;
};

/// A stage as so many replicas, each of so many workers that part its operators.
struct StageDegrees {
  int64_t dp = 1, tp = 1;
  int64_t num_workers() const { return dp * tp; }
  bool operator==(const StageDegrees&) const = default;
};
/// "2x1,1x2"
std::string stages_to_text(const std::vector<StageDegrees>& stages);
/// The least common multiple of their replicas: [Note: Lanes].
int64_t num_lanes(const std::vector<StageDegrees>& stages);
int64_t num_workers(const std::vector<StageDegrees>& stages);

/// Degrees multiply to the number of workers; experts are sharded over the ranks of dp.
struct Layout {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;  ///< dp: replicas; where stages differ, lanes ([Note: Lanes])
  std::vector<StageDegrees> stages = {};           ///< of each, instead of dp and tp; empty: all alike
  Partition split = {};                            ///< layers of each stage; empty: as their costs say
  int64_t lanes = 1;                               ///< of one stage: micro-batches of a replica at each turn
  bool sequence = false;

  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::optional<Schedule> own_schedule = {};  ///< instead, of `pp` ranks and accumulation() micro-batches
  int64_t interleave = 1;
  int64_t update_every = 0;  ///< micro-batches of an update, for schedules that have several; 0: as the schedule has it

  // global_batch = micro_batch x micro_batches(); dp | num_leaves() | micro_batches(). Leaves ([Note: Leaves]), not dp,
  // fix the order of every sum, so the same leaves give the same bits for any dp that divides them, and for batch
  // parts of any size: parallel.shares gives some replicas more leaves than others.
  int64_t global_batch = 1;               ///< samples of a step
  int64_t micro_batch = 1;                ///< samples of a replica at a time
  int64_t leaves = 0;                     ///< 0: derived
  std::vector<int64_t> batch_parts = {};  ///< "3,1": parts of the batch, of each replica; empty: equal

  int zero = 0;
  int64_t zero_shards = 0;       ///< neighbouring replicas among which ZeRO shards; 0: all
  bool zero_keep = false;        ///< 3, without a pipeline: weights stay from the forward to the backward pass
  bool zero_sums_whole = false;  ///< gradients are summed whole, and scattered at the end of a step
  bool offload = false;          ///< master weights and optimizer state are in a file or on the host
  bool offload_weights = false;  ///< with zero 3: the weights that are computed with, too
  int64_t servers = 0;           ///< parameter servers that sum and update; 0: replicas sum among themselves
  GradientExchange exchange = GradientExchange::kSum;  ///< where there is more than one replica, or servers
  double exchange_bytes = 4;  ///< per parameter, in a Combine or a Meet: what a replica contributes to the exchange
  int64_t meet_every = 1;     ///< kLocal: steps from one meeting of the replicas to the next
  double bucket_bytes = 0;    ///< gradients that are reduced together; 0: as the software derives it

  Recompute recompute;
  NumberType compute = NumberType::kBfloat16;
  bool fp8_products = false;
  bool float32_gradients = false;  ///< kept and summed in float32, where others are computed
  double optimizer_state = 8;      ///< bytes a parameter: 8 for Adam's two moments
  Method compression = Method::kNone;
  double wire_factor = 1;        ///< bytes of a gradient on the wire, of those without compression
  bool sparse_exchange = false;  ///< compressed sums are an all-gather: their volume grows with the replicas

  bool has_uneven_stages() const;
  /// stages_to_text(), but empty where all are alike.
  std::string shapes_text() const;
  /// The layout of one stage: its degrees, and the lanes of its replicas.
  Layout of_stage(size_t stage) const;
  int64_t num_devices() const;
  // Workers count through {dp, pp, tp}: those of one model are neighbours, and of those the ones that split operators.
  // Where stages differ in shape they count stage by stage, and in each through {dp, tp}.
  int64_t first_worker(int stage) const;  ///< of those that hold a stage
  int64_t pipeline_rank_of(int64_t worker) const;
  int64_t num_replicas() const { return dp * cp; }  ///< of each weight but those of experts
  int64_t num_shards() const { return zero_shards > 0 ? zero_shards : num_replicas(); }
  /// Bytes of a gradient as it is summed, without compression.
  double gradient_bytes() const { return float32_gradients ? 4 : bytes_of(compute); }
  /// Of most products of a step: the peak of this type is what a device could reach.
  NumberType product_type() const { return fp8_products ? NumberType::kFp8 : compute; }

  int64_t micro_batches() const { return global_batch / micro_batch; }  ///< of a step, over all replicas
  /// Micro-batches of a step on one replica; with unequal batch parts, of the one that has most.
  int64_t accumulation() const;
  int64_t num_leaves() const;
  /// Leaves of each replica, where there are batch_parts.
  std::vector<int64_t> leaves_of_replicas() const;
  /// Whether the trainer can sum it along the tree: its leaves divide the batch, and replicas the leaves.
  bool has_leaves() const { return micro_batches() % num_leaves() == 0 && num_leaves() % dp == 0; }

  /// Has stages in its programs; without, a rank holds the whole model.
  bool is_pipeline() const { return pp > 1 || own_schedule; }
  /// Weights change while micro-batches are under way.
  bool is_asynchronous() const { return pp > 1 && !own_schedule && !is_synchronous(schedule); }
  std::string_view schedule_name() const { return own_schedule ? "own schedule" : name_of(schedule); }

  /// Throws UsageError for what no model can be cut by.
  void check() const;
  /// "dp 2, tp 8, pp 4 (1f1b), ZeRO-1, micro-batches of 1".
  std::string to_string() const;
  bool operator==(const Layout&) const = default;
};

/// Of one replica; without orders where there is no pipeline. `times`: where the order depends on them, as zb-v's does.
Schedule schedule_of(const Layout& layout, const StageTimes& times = {});

/// What the programs of the layout depend on, but for groups of gradients and tied weights, which the model decides.
StepShape step_shape(const Layout& layout, Schedule schedule);
inline StepShape step_shape(const Layout& layout) { return step_shape(layout, schedule_of(layout)); }

}  // namespace trireme
