// The layout of a training: degrees, stages, schedule, batch, ZeRO, recomputation, dtypes. One value, made by the
// config's checks and used by trainer, programs, simulator and planner.
//
// A plain value, independent of the model. layout_of() (config/layout_of.h) makes it from keys, and keys_of() there
// converts it back; check() reports what is inconsistent, whoever made the value. Threads: all.
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

/// What the backward pass recomputes instead of keeping.
struct Recompute {
  RecomputeKind kind = RecomputeKind::kNone;             ///< selective: the attention of every block
  std::vector<std::pair<int64_t, int64_t>> ranges = {};  ///< layers recomputed as a whole: first and last, inclusive

  Recompute() = default;
  Recompute(RecomputeKind of_all) : kind(of_all) {}  // NOLINT: the usual case
  bool covers(int64_t layer) const;
  /// The largest layer number in `ranges`, or -1.
  int64_t last() const;
  /// As written in train.recompute: "none", "full", "selective", "0-3,7".
  std::string to_string() const;
  bool operator==(const Recompute&) const = default;
};

/// The degrees of one stage: its replicas, and the workers of each replica, which shard its operators.
struct StageDegrees {
  int64_t dp = 1, tp = 1;
  int64_t num_workers() const { return dp * tp; }
  bool operator==(const StageDegrees&) const = default;
};
/// "2x1,1x2"
std::string stages_to_text(const std::vector<StageDegrees>& stages);
/// The least common multiple of the stages' replicas: [Note: Lanes].
int64_t num_lanes(const std::vector<StageDegrees>& stages);
int64_t num_workers(const std::vector<StageDegrees>& stages);

/// Degrees multiply to the number of workers; experts are sharded over the ranks of dp.
struct Layout {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;  ///< dp: replicas; if stages differ, lanes ([Note: Lanes])
  std::vector<StageDegrees> stages = {};           ///< degrees of each stage, instead of dp and tp; empty: all alike
  Partition split = {};                            ///< layers of each stage; empty: balanced by cost
  int64_t lanes = 1;  ///< lanes of one stage: micro-batches that a replica processes per turn
  bool sequence = false;

  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::optional<Schedule> own_schedule = {};  ///< used instead, for `pp` ranks and accumulation() micro-batches
  int64_t interleave = 1;
  int64_t update_every = 0;  ///< micro-batches per update, for schedules with several; 0: the schedule's default

  // global_batch = micro_batch x micro_batches(); dp | num_leaves() | micro_batches(). Leaves ([Note: Leaves]), not dp,
  // fix the order of every sum, so the same leaves give the same bits for any dp that divides them, and for unequal
  // batch parts: parallel.shares gives some replicas more leaves than others.
  int64_t global_batch = 1;               ///< samples per step
  int64_t micro_batch = 1;                ///< samples per micro-batch
  int64_t leaves = 0;                     ///< leaves of the reduction tree; 0: derived
  std::vector<int64_t> batch_parts = {};  ///< "3,1": relative batch part of each replica; empty: equal

  int zero = 0;
  int64_t zero_shards = 0;       ///< neighbouring replicas over which ZeRO shards; 0: all
  bool zero_keep = false;        ///< ZeRO-3 without a pipeline: weights stay gathered from forward to backward
  bool zero_sums_whole = false;  ///< whole gradients are accumulated, and reduce-scattered at the end of a step
  bool offload = false;          ///< master weights and optimizer state are in host memory or in a file
  bool offload_weights = false;  ///< so are the weights that the model computes with; needs ZeRO-3
  int64_t servers = 0;           ///< parameter servers that sum and update; 0: replicas all-reduce
  GradientExchange exchange = GradientExchange::kSum;  ///< only used with several replicas, or servers
  double exchange_bytes = 4;                           ///< bytes per parameter that a replica sends in Combine or Meet
  int64_t meet_every = 1;                              ///< kLocal: steps between meetings of the replicas
  double bucket_bytes = 0;                             ///< gradients that are reduced together; 0: derived

  Recompute recompute;
  NumberType compute = NumberType::kBfloat16;
  bool fp8_products = false;
  bool float32_gradients = false;  ///< gradients are kept and summed in float32, even if computed in another dtype
  double optimizer_state = 8;      ///< bytes per parameter: 8 for Adam's two moments
  Method compression = Method::kNone;
  double wire_factor = 1;        ///< bytes of a gradient on the wire, as a fraction of those without compression
  bool sparse_exchange = false;  ///< compressed sums use an all-gather: their volume grows with the replicas

  bool has_uneven_stages() const;
  /// stages_to_text(), but empty if all stages are alike.
  std::string shapes_text() const;
  /// The layout of one stage: its degrees, and the lanes of its replicas.
  Layout of_stage(size_t stage) const;
  int64_t num_devices() const;
  // Workers are numbered through {dp, pp, tp}: those of one model are adjacent, and within it those of one
  // tensor-parallel group. If stages differ in shape they are numbered stage by stage, and within a stage through {dp,
  // tp}.
  int64_t first_worker(int stage) const;  ///< the lowest worker that holds `stage`
  int64_t pipeline_rank_of(int64_t worker) const;
  int64_t num_replicas() const { return dp * cp; }  ///< copies of each weight except those of experts
  int64_t num_shards() const { return zero_shards > 0 ? zero_shards : num_replicas(); }
  /// Bytes of a gradient element as it is summed, without compression.
  double gradient_bytes() const { return float32_gradients ? 4 : bytes_of(compute); }
  /// Dtype of most matmuls of a step; its peak speed is what a device could reach.
  NumberType product_type() const { return fp8_products ? NumberType::kFp8 : compute; }

  int64_t micro_batches() const { return global_batch / micro_batch; }  ///< per step, over all replicas
  /// Micro-batches per step on one replica; with unequal batch parts, on the one with most.
  int64_t accumulation() const;
  int64_t num_leaves() const;
  /// Leaves of each replica; call it only with batch_parts.
  std::vector<int64_t> leaves_of_replicas() const;
  /// Whether the trainer can sum along the tree: leaves divide the micro-batches, and dp divides the leaves.
  bool has_leaves() const { return micro_batches() % num_leaves() == 0 && num_leaves() % dp == 0; }

  /// Whether its programs have stages; otherwise each rank holds the whole model.
  bool is_pipeline() const { return pp > 1 || own_schedule; }
  /// Whether weights change while micro-batches are in flight.
  bool is_asynchronous() const { return pp > 1 && !own_schedule && !is_synchronous(schedule); }
  std::string_view schedule_name() const { return own_schedule ? "own schedule" : name_of(schedule); }

  /// Throws UsageError if no model can be trained with this layout.
  void check() const;
  /// "dp 2, tp 8, pp 4 (1f1b), ZeRO-1, micro-batches of 1".
  std::string to_string() const;
  bool operator==(const Layout&) const = default;
};

/// The schedule of one replica; has no orders without a pipeline. `times`: for orders that depend on them, as zb-v's.
Schedule schedule_of(const Layout& layout, const StageTimes& times = {});

/// Everything that the layout's programs depend on, except gradient buckets and tied weights, which the model decides.
StepShape step_shape(const Layout& layout, Schedule schedule);
inline StepShape step_shape(const Layout& layout) { return step_shape(layout, schedule_of(layout)); }

}  // namespace trireme
