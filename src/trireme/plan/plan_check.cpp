#include "trireme/plan/plan_check.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"
#include "trireme/config/pipeline.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/graph.h"
#include "trireme/plan/intra_op.h"
#include "trireme/plan/json_reader.h"

namespace trireme {
namespace {

/// Weights of some layers, by their names in a plan, with their numbers of dimensions.
std::map<std::string, size_t> weights_of(const Graph& graph, const LayerRange& layers) {
  std::map<std::string, size_t> weights;
  for (const GraphOperator& op : graph.operators) {
    if (op.layer < layers.first || op.layer >= layers.last) continue;
    for (const int input : op.inputs) {
      const GraphTensor& tensor = graph.tensors[static_cast<size_t>(input)];
      if (tensor.is_parameter) weights[name_in_plan(tensor.name)] = tensor.sizes.size();
    }
  }
  return weights;
}

void check_placements(const Plan& plan) {
  const Graph graph = graph_of(plan.model, 1);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const std::map<std::string, size_t> weights = weights_of(graph, plan.stages[i].layers);
    for (const auto& [name, text] : plan.stages[i].placements) {
      const std::string what = fmt::format("stage {} of the plan has a placement of {}", i, name);
      const auto found = weights.find(name);
      if (found == weights.end())
        throw UsageError(what + ", and no such weight", "trireme plan writes those there are");
      for (const Placement& placement : placements_from(std::string_view(text).substr(1, text.size() - 2))) {
        const bool is_there = placement.dim >= 0 && placement.dim < static_cast<int>(found->second);
        if (placement.is_shard() && !is_there) {
          throw UsageError(fmt::format("{}, {}, and the weight has {} dimensions", what, text, found->second),
                           "they are counted from 0");
        }
      }
    }
  }
}

}  // namespace

Config check_plan_keys(const Plan& plan, const Config& config, int64_t world) {
  check_plan(plan, config, world);
  Config planned = config;
  apply_plan(plan, planned);
  // Types are no part of a plan, and the device that has them may be elsewhere.
  Config sizes = planned;
  sizes.precision = {};
  const BatchPlan batch = check_sizes(sizes, world);
  job_of(planned).check();
  if (planned.parallel.pp > 1) pipeline_schedule(planned, batch);
  check_placements(plan);
  return planned;
}

std::string why_not_trained(const Config& planned, int64_t world) {
  try {
    check(planned, world);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace trireme
