// The inter-operator pass: layers cut into stages, devices into sub-meshes, so that a pipeline of them is fastest.
//
// A step of m micro-batches takes the sum of all stages and m-1 times the slowest. Stages may differ in shape.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "trireme/program/schedules/partition.h"

namespace trireme {

struct InterOpProblem {
  int num_layers = 1;
  int num_units = 1;                 ///< devices, or hosts where only whole ones are given out
  std::vector<int> mesh_units = {};  ///< of each kind of sub-mesh that a stage may have
  int micro_batches = 1;
  int most_stages = 0;  ///< 0: any number
  /// Seconds of a micro-batch on a stage of these layers, with so many stages behind it and itself, which decides how
  /// many micro-batches it holds. Infinite, or kForbidden, where it does not fit. Asked once for each.
  std::function<double(const LayerRange&, int mesh, int stages_to_end)> seconds = {};
  /// Bounds on the slowest stage that are closer than this, relatively, are taken for one. 0: exact.
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
  double seconds = 0;  ///< of all micro-batches
};

double pipeline_seconds(const std::vector<InterOpStage>& stages, int micro_batches);

/// The best plan that uses all devices; none: nothing fits. Throws UsageError for a problem without layers or devices.
std::optional<InterOpPlan> plan_stages(const InterOpProblem& problem);

}  // namespace trireme
