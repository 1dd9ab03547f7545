// The file of a plan for a module of one's own: how parallelize() writes it and runs from it.
//
// JSON, a value a line: the layout, the stages, and how each operator is computed, one line each. Every placement may
// be edited; what no rule computes is refused.
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

/// What a file says, before it is held against a module.
struct GraphPlanFile {
  struct Stage {
    int64_t first = 0, last = 0;  ///< operators
    std::string mesh;             ///< "1x2"
    bool recompute = false;
    double memory_bytes = 0;
  };
  std::string name;  ///< of the file, for messages
  int64_t world_size = 1;
  std::string cluster;
  int64_t batch = 1;
  std::string layout;
  std::vector<Stage> stages;
  std::vector<std::string> operators;
  double step_seconds = 0, memory_bytes = 0;
};

std::string graph_plan_to_json(const GraphPlan& plan, int64_t batch, const std::string& cluster);
/// Throws UsageError that names what is missing, unknown or of another kind.
GraphPlanFile graph_plan_from_json(std::string_view text, const std::string& name);

/// Throws UsageError where it is for another number of workers.
void check_world(const GraphPlanFile& file, int world);
/// The plan for this module: `graph_of` gives its graph for so many samples, without layers. Throws UsageError that
/// names the first difference: the batch, an operator that is another one or of other sizes, stages that leave
/// operators out, placements that no rule has.
GraphPlan graph_plan_of(const GraphPlanFile& file, const std::function<Graph(int64_t samples)>& graph_of,
                        int64_t batch);

}  // namespace trireme
