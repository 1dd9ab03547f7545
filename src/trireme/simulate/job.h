// What is simulated: a model's shape, how it is laid out over devices, in which types and batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/program/schedules/partition.h"
#include "trireme/program/schedules/schedule.h"
#include "trireme/simulate/cluster.h"

namespace trireme {

enum class ShapeKind { kGpt, kLlama, kMlp, kResNet };

/// Sizes of a model. Fields that a kind does not use keep their defaults.
struct ModelShape {
  ShapeKind kind = ShapeKind::kGpt;
  int64_t layers = 1, hidden = 1, heads = 1, kv_heads = 1, ffn = 4, seq = 1, vocab = 2;
  bool tied = true;
  int64_t experts = 1, active_experts = 1;  ///< mixture of experts: feed-forward parts of a block, used by each token
  int64_t depth = 50, channels = 3, image = 224, classes = 1000;  ///< images
  bool is_language() const { return kind == ShapeKind::kGpt || kind == ShapeKind::kLlama; }
  bool operator==(const ModelShape&) const = default;
};

enum class RecomputeKind { kNone, kSelective, kFull };

/// A stage with a shape of its own: [Note: Lanes].
struct StageShape {
  LayerRange blocks = {};  ///< none in all stages: as simulate() cuts
  int64_t dp = 0, tp = 0;  ///< 0: as the layout has them
  bool operator==(const StageShape&) const = default;
};

/// How the job is cut. Degrees multiply to the number of devices; experts are shared among the ranks of dp.
struct JobLayout {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int zero = 0;
  int64_t zero_shards = 0;  ///< replicas that share what ZeRO shares, next to each other; 0: all
  bool sequence = false;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::optional<Schedule> own_schedule = {};  ///< instead, of `pp` ranks and num_micro_batches()
  int64_t interleave = 1;
  int64_t micro_batch = 1;   ///< samples of a replica at a time
  int64_t global_batch = 1;  ///< samples of a step
  RecomputeKind recompute = RecomputeKind::kNone;
  std::vector<std::pair<int64_t, int64_t>> full_layers = {};  ///< recomputed whole, beside that: first and last
  NumberType compute = NumberType::kBfloat16;
  bool as_trained = false;  ///< by Trireme's own trainer, not by the software of published trainings
  bool fp8_products = false;
  bool float32_gradients = false;  ///< kept and summed in float32; by others, beside those of the compute type
  double wire_factor = 1;          ///< bytes of a gradient on the wire, of those without compression
  bool sparse_exchange = false;    ///< compressed sums are an all-gather: their volume grows with the replicas
  double optimizer_state = 8;      ///< bytes a parameter: 8 for Adam's two moments
  double bucket_bytes = 0;         ///< gradients that are reduced together; 0: as the software derives it
  bool offload = false;            ///< master weights and optimizer state lie in a file or on the host
  bool offload_weights = false;    ///< with zero 3: the weights that are computed with, too
  int64_t servers = 0;             ///< parameter servers that sum and update; 0: replicas sum among themselves
  /// Blocks of each stage, and shapes that differ; then `dp` is the number of lanes. Empty: as simulate() cuts.
  std::vector<StageShape> stages = {};
  int64_t lanes = 1;                 ///< of a replica of a stage: micro-batches that it computes at each turn
  std::vector<int64_t> shares = {};  ///< micro-batches of each replica; empty: equal
  std::optional<bool> overlap;       ///< of gradient sums; unset: as the cluster's stack does
  std::optional<bool> flash;         ///< fused attention; unset: as the stack has it

  bool has_uneven_stages() const;
  /// dp x tp of each, "2x1,1x2"; empty where all are alike.
  std::string shapes_text() const;
  /// The layout of one stage: its degrees, and the lanes of its replicas.
  JobLayout of_stage(size_t stage) const;
  int64_t num_devices() const;
  int64_t num_replicas() const { return dp * cp; }  ///< of each weight but those of experts
  int64_t num_sharers() const { return zero_shards > 0 ? zero_shards : num_replicas(); }
  /// Bytes of a gradient as it is summed, without compression.
  double gradient_bytes() const { return float32_gradients ? 4 : bytes_of(compute); }
  /// Of most products of a step: the peak of this type is what a device could reach.
  NumberType product_type() const { return fp8_products ? NumberType::kFp8 : compute; }
  int64_t num_micro_batches() const { return global_batch / micro_batch / dp; }
  std::string_view schedule_name() const { return own_schedule ? "own schedule" : name_of(schedule); }
  bool operator==(const JobLayout&) const = default;
};

struct Job {
  ModelShape model;
  JobLayout layout;
  /// Throws UsageError for what cannot be cut that way.
  void check() const;
  bool operator==(const Job&) const = default;
};

/// Whether attention keeps no matrix: the job's wish, or what the stack does in the job's type.
bool uses_flash(const Job& job, const Cluster& cluster);
/// Whether weights are shared by PyTorch's FSDP: [Note: Eager sharding].
bool uses_eager_sharding(const Job& job, const Cluster& cluster);

}  // namespace trireme
