// The plan file of a captured module, which parallelize() writes and executes.
//
// JSON with one value per line: the layout, the stages, and the strategy of each operator. Every placement may be
// edited; placements without a rule are refused.
//
//   "addmm(up.bias [1024] at [shard(0)], gelu.2 [64, 256] at [replicate], up.weight [256, 1024] at [shard(1)])
//    -> [64, 1024] at [shard(1)]"
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/graph/graph_plan.h"

namespace trireme {

constexpr const char* kGraphPlanFormat = "trireme graph plan 1";

/// The contents of a file, before they are matched with a module.
struct GraphPlanFile {
  struct Stage {
    int64_t first = 0, last = 0;  ///< first and last operator
    std::string mesh;             ///< "1x2"
    bool recompute = false;
    double memory_bytes = 0;
  };
  std::string name;  ///< name of the file, for messages
  int64_t world_size = 1;
  std::string cluster;
  int64_t batch = 1;
  std::string layout;
  std::vector<Stage> stages;
  std::vector<std::string> operators;
  double step_seconds = 0, memory_bytes = 0;
};

std::string graph_plan_to_json(const GraphPlan& plan, int64_t batch, const std::string& cluster);
/// Parses a file. Throws UsageError that names what is missing, unknown or of the wrong type.
GraphPlanFile graph_plan_from_json(std::string_view text, const std::string& name);

/// Throws UsageError if the plan is for another number of workers.
void check_world(const GraphPlanFile& file, int world);
/// Matches the file with a module and returns its plan. `graph_of` returns the module's graph for a number of samples,
/// without layers. Throws UsageError that names the first difference: the batch, a different operator or size, stages
/// that omit operators, placements without a rule.
GraphPlan graph_plan_of(const GraphPlanFile& file, const std::function<Graph(int64_t samples)>& graph_of,
                        int64_t batch);

}  // namespace trireme
