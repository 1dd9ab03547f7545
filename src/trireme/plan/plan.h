// A plan: which layers run on which devices, how they are cut there, and what that is predicted to take.
//
// A plain value. make_plan() finds one (search.h), plan_to_json() and read_plan() are its file, check_plan() says
// whether it belongs to a configuration and a number of workers, apply_plan() turns it into the trainer's keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

struct PlanStage {
  LayerRange layers;  ///< as the trainer counts: embedding or stem, blocks, output
  int64_t first_device = 0, num_devices = 1;
  int64_t dp = 1, tp = 1;
  /// Names of parameters and how they lie on the axes {dp, tp}: "layers.*.mlp.up.weight", "[replicate, shard(0)]".
  std::vector<std::pair<std::string, std::string>> placements;
  bool operator==(const PlanStage&) const = default;
};

/// What the simulator says: seconds and bytes, of a step and of the fullest device.
struct PlanPrediction {
  double step_seconds = 0, tokens_per_second_per_gpu = 0, model_tflops_per_gpu = 0, hardware_tflops_per_gpu = 0;
  double memory_bytes_per_gpu = 0, bubble_fraction = 0;
  double memory_limit_bytes = 0;
  bool fits = false;
  bool operator==(const PlanPrediction&) const = default;
};

/// The trainer's keys that a plan decides.
struct PlanKeys {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, zero = 0, interleave = 1;
  bool sequence = false;
  std::string schedule = "1f1b", split, stages, shares;
  int64_t global_batch = 1, micro_batch = 1, leaves = 0;
  std::string recompute = "none", compression = "none", compute = "float32";
  bool operator==(const PlanKeys&) const = default;
};

struct Plan {
  ModelConfig model;
  int64_t world_size = 1;
  std::string cluster;
  PlanKeys keys;
  std::vector<PlanStage> stages;
  PlanPrediction predicted;

  /// Stages differ in shape.
  bool has_uneven_stages() const;
  /// "dp 2, tp 8, pp 4 (1f1b), ZeRO-1, micro-batches of 1".
  std::string layout_text() const;
  bool operator==(const Plan&) const = default;
};

PlanPrediction prediction_of(const Simulation& simulation);

/// A JSON object, a line a value, so that two plans can be compared line by line.
std::string plan_to_json(const Plan& plan);
/// `name` stands for the file in messages. Throws UsageError that names what is missing, unknown or cannot be: layers
/// or devices without a stage, degrees that do not multiply to the world.
Plan plan_from_json(std::string_view text, const std::string& name);
/// Throws UsageError where it cannot be read, too.
Plan read_plan(const std::filesystem::path& path);

/// Whether the plan is for this model, batch and number of workers. Throws UsageError that names the difference.
void check_plan(const Plan& plan, const Config& config, int64_t world);
/// Sets the keys of the plan, as if somebody had given them.
void apply_plan(const Plan& plan, Config& config);

/// The one list of the trainer's keys that a plan decides, for its file and for a config: `visit(name, value)` for
/// each.
template <typename Keys, typename Visit>
void visit_keys(Keys& k, Visit visit) {
  visit("parallel.dp", k.dp);
  visit("parallel.tp", k.tp);
  visit("parallel.pp", k.pp);
  visit("parallel.cp", k.cp);
  visit("parallel.ep", k.ep);
  visit("parallel.zero", k.zero);
  visit("parallel.sequence", k.sequence);
  visit("parallel.schedule", k.schedule);
  visit("parallel.interleave", k.interleave);
  visit("parallel.split", k.split);
  visit("parallel.stages", k.stages);
  visit("parallel.shares", k.shares);
  visit("train.global_batch", k.global_batch);
  visit("train.micro_batch", k.micro_batch);
  visit("train.leaves", k.leaves);
  visit("train.recompute", k.recompute);
  visit("precision.compute", k.compute);
  visit("compression.method", k.compression);
}

}  // namespace trireme
