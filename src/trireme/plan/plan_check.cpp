#include "trireme/plan/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/value.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/graph/graph.h"
#include "trireme/plan/graph/intra_op.h"
#include "trireme/plan/plan_text.h"

namespace trireme {
namespace {

/// Weights of some layers by their names in a plan, with their numbers of dims.
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

std::vector<Placement> placements_in(const std::string& text) {  // "[replicate, shard(0)]"
  return placements_from(std::string_view(text).substr(1, text.size() - 2));
}

}  // namespace

void check_placements(const Plan& plan) {
  const Graph graph = graph_of(plan.model, 1);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    const std::map<std::string, size_t> weights = weights_of(graph, stage.layers);
    std::multimap<std::string, std::string> trained;
    for (const auto& line : trained_placements(graph, stage.layers, stage.dp, stage.tp)) trained.insert(line);
    for (const auto& [name, text] : stage.placements) {
      const std::string what = fmt::format("stage {} of the plan has a placement of {}", i, name);
      const auto found = weights.find(name);
      if (found == weights.end())
        throw UsageError(what + ", and no such weight", "trireme plan writes those there are");
      const std::vector<Placement> here = placements_in(text);
      for (const Placement& placement : here) {
        const bool is_there = placement.dim >= 0 && placement.dim < static_cast<int>(found->second);
        if (placement.is_shard() && !is_there) {
          throw UsageError(fmt::format("{}, {}, and the weight has {} dimensions", what, text, found->second),
                           "they are counted from 0");
        }
      }
      const auto [first, last] = trained.equal_range(name);
      if (std::any_of(first, last, [&](const auto& line) { return placements_in(line.second) == here; })) continue;
      throw UsageError(fmt::format("{}, {}, and with dp {} and tp {} the trainer has it as {}", what, text, stage.dp,
                                   stage.tp, first->second),
                       "weights are cut as parallel.tp says: put the placement back, or plan anew with another "
                       "--parallel.tp");
    }
  }
}

void check_given(const Plan& plan, const Config& config, const std::string& file) {
  Config planned = config;
  apply_plan(plan, planned);
  for (const Key& key : keys()) {
    const std::string name = key.full_name();
    if (!is_given(config, name) || name == "parallel.plan") continue;
    const Value here = get_value(config, key), there = get_value(planned, key);
    if (here == there || (name == "parallel.dp" && config.parallel.dp == -1)) continue;
    throw wrong_key(
        name,
        fmt::format("{} = {} is given, but {} is a plan with {}", name, format_value(here), file, format_value(there)),
        fmt::format("leave out {}, edit the plan, or plan anew: trireme plan", name));
  }
}

Config check_plan_keys(const Plan& plan, const Config& config, int64_t world, const std::string& file) {
  check_plan(plan, config, world);
  check_given(plan, config, file);
  Config planned = config;
  apply_plan(plan, planned);
  Config sizes = planned;  // the device with these dtypes may be on another machine
  sizes.precision = {};
  const Layout layout = check_sizes(sizes, world);
  job_of(planned, Software::kTrireme).check();
  schedule_of(layout);
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

std::vector<Cluster> clusters_of(const Plan& plan) {
  const std::vector<std::string> known = preset_names();
  std::error_code ignored;
  for (const std::string_view part : split(plan.cluster, '+')) {
    const std::string name(part);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (std::filesystem::is_regular_file(name, ignored)) continue;
    throw UsageError(fmt::format("the plan is for the cluster {}, which is neither known nor a file here", name),
                     fmt::format("give --cluster: its file, or one of {}", join(known, ", ")));
  }
  return find_clusters(plan.cluster);
}

Simulation simulate_plan(const Config& planned, const std::vector<Cluster>& kinds, std::optional<bool> flash) {
  Job job = job_of(planned, trireme_on(kinds.front()));
  job.flash = flash;
  for (const Cluster& kind : kinds) check_types(job.layout, kind);
  return simulate_mix(job, kinds);
}

}  // namespace trireme
