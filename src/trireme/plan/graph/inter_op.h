// The inter-operator pass: partitions layers into stages and devices into sub-meshes, minimizing the time of the
// pipeline.
//
// A step of m micro-batches takes the sum of all stages plus m-1 times the slowest. Stages may differ in shape. Pure
// functions. Threads: all.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "trireme/program/schedules/partition.h"

namespace trireme {

struct InterOpProblem {
  int num_layers = 1;
  int num_units = 1;                 ///< devices, or hosts if only whole hosts are assigned
  std::vector<int> mesh_units = {};  ///< units of each kind of sub-mesh that a stage may have
  int micro_batches = 1;
  int most_stages = 0;  ///< upper bound on stages; 0: none
  /// Seconds of a micro-batch on a stage with these layers. The number of stages from this one to the end determines
  /// how many micro-batches it holds. Infinite, or kForbidden, if it does not fit. Called once per combination.
  std::function<double(const LayerRange&, int mesh, int stages_to_end)> seconds = {};
  /// Relative resolution of the bounds on the slowest stage. 0: exact.
  double tolerance = 0;
};

struct InterOpStage {
  LayerRange layers;
  int mesh = 0;
  double seconds = 0;
  bool operator==(const InterOpStage&) const = default;
};

struct InterOpPlan {
  std::vector<InterOpStage> stages;
  double seconds = 0;  ///< seconds of all micro-batches
};

double pipeline_seconds(const std::vector<InterOpStage>& stages, int micro_batches);

/// Returns the best plan that uses all devices; nullopt if nothing fits. Throws UsageError for a problem without layers
/// or devices.
std::optional<InterOpPlan> plan_stages(const InterOpProblem& problem);

}  // namespace trireme
