// A plan: which layers run on which devices, how they are sharded there, and the predicted time and memory.
//
// A plain value. make_plan() (search.h) finds one, plan_to_json() and read_plan() write and read its file, check_plan()
// checks it against a configuration and a number of workers, apply_plan() sets the trainer's keys. Threads: all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/layout_of.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

struct PlanStage {
  LayerRange layers;  ///< as the trainer numbers them: embedding or stem, blocks, output
  int64_t first_device = 0, num_devices = 1;
  int64_t dp = 1, tp = 1;
  /// Names of parameters with their placements on the axes {dp, tp}: "layers.*.mlp.up.weight", "[replicate, shard(0)]".
  std::vector<std::pair<std::string, std::string>> placements;
  bool operator==(const PlanStage&) const = default;
};

/// The simulator's prediction: seconds of a step, bytes of the fullest device.
struct PlanPrediction {
  double step_seconds = 0, tokens_per_second_per_gpu = 0, model_tflops_per_gpu = 0, hardware_tflops_per_gpu = 0;
  double memory_bytes_per_gpu = 0, bubble_fraction = 0;
  double memory_limit_bytes = 0;
  bool fits = false;
  bool operator==(const PlanPrediction&) const = default;
};

struct Plan {
  ModelShape model;
  int64_t world_size = 1;
  std::string cluster;
  Layout layout;  ///< as the plan's keys determine it; everything else is default
  std::vector<PlanStage> stages;
  PlanPrediction predicted;

  /// Whether stages differ in shape.
  bool has_uneven_stages() const;
  std::string layout_text() const { return layout.to_string(); }
  bool operator==(const Plan&) const = default;
};

PlanPrediction prediction_of(const Simulation& simulation);

/// Returns the layout that these keys determine, which is what a plan stores. Throws UsageError that names the key.
Layout planned_layout(const ModelShape& model, const std::vector<std::pair<const char*, Value>>& keys);

/// Returns a JSON object with one value per line, so that two plans can be compared with diff.
std::string plan_to_json(const Plan& plan);
/// Parses a plan; `name` is the file's name in messages. Throws UsageError that names what is missing, unknown or
/// inconsistent: layers or devices without a stage, degrees whose product is not the world size.
Plan plan_from_json(std::string_view text, const std::string& name);
/// Reads a plan from a file. Throws as plan_from_json(), and UsageError if the file cannot be read.
Plan read_plan(const std::filesystem::path& path);

/// Checks that the plan is for this model, batch and number of workers. Throws UsageError that names the difference.
void check_plan(const Plan& plan, const Config& config, int64_t world);
/// Sets the plan's keys in the configuration, with the origin "the plan".
void apply_plan(const Plan& plan, Config& config);

}  // namespace trireme
