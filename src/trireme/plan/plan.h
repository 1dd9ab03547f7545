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

#include "trireme/config/layout_of.h"
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

struct Plan {
  ModelShape model;
  int64_t world_size = 1;
  std::string cluster;
  Layout layout;  ///< as the keys of the plan make it: nothing beside them
  std::vector<PlanStage> stages;
  PlanPrediction predicted;

  /// Stages differ in shape.
  bool has_uneven_stages() const;
  std::string layout_text() const { return layout.to_string(); }
  bool operator==(const Plan&) const = default;
};

PlanPrediction prediction_of(const Simulation& simulation);

/// What a plan keeps of a layout: what its keys say. Throws UsageError that names the key.
Layout planned_layout(const ModelShape& model, const std::vector<std::pair<const char*, Value>>& keys);

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

}  // namespace trireme
