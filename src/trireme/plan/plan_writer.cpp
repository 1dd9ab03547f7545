#include "trireme/plan/plan_writer.h"

#include <fmt/format.h>

#include <map>

#include "trireme/base/text.h"
#include "trireme/config/batch_plan.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme {
namespace {

/// As train.recompute says it.
std::string recompute_text(const JobLayout& layout) {
  if (layout.recompute == RecomputeKind::kFull) return "full";
  if (layout.recompute == RecomputeKind::kSelective) return "selective";
  std::vector<std::string> ranges;
  for (const auto& [first, last] : layout.full_layers) ranges.push_back(fmt::format("{}-{}", first, last));
  return ranges.empty() ? "none" : join(ranges, ",");
}

}  // namespace

PlanKeys keys_of(const Candidate& candidate) {
  const JobLayout& l = candidate.job.layout;
  PlanKeys k;
  k.dp = l.dp;
  k.tp = l.tp;
  k.pp = l.pp;
  k.cp = l.cp;
  k.ep = l.ep;
  k.zero = l.zero;
  k.interleave = l.interleave;
  k.sequence = l.sequence;
  k.schedule = name_of(l.schedule);
  k.global_batch = l.global_batch;
  k.micro_batch = l.micro_batch;
  k.recompute = recompute_text(l);
  k.stages = l.shapes_text();
  k.compression = candidate.compression;
  return k;
}

namespace {

/// The first device of each rank of the pipeline.
std::vector<int64_t> first_devices(const Simulation& s) {
  std::vector<int64_t> first(static_cast<size_t>(s.schedule.num_ranks) + 1, 0);
  for (size_t i = 0; i < s.stages.size(); ++i) {
    const JobLayout own = s.job.layout.of_stage(i);
    first[static_cast<size_t>(s.schedule.rank_of_stage[i]) + 1] = own.dp * own.tp * own.cp;
  }
  for (size_t rank = 1; rank < first.size(); ++rank) first[rank] += first[rank - 1];
  return first;
}

IntraOpPlan operators_on(const Graph& graph, const Cluster& cluster, const JobLayout& layout) {
  IntraOpProblem problem{
      &graph, cluster, {{static_cast<int>(layout.dp), static_cast<int>(layout.tp)}}, {.type = layout.compute}};
  problem.by_recipe = true;
  return plan_operators(problem);
}

}  // namespace

Graph graph_for(const Config& config, const Job& job, const Cluster& cluster, int64_t samples) {
  return graph_of(config.model, samples,
                  {bytes_of(job.layout.compute), uses_flash(job, cluster), cluster.stack.gated_traffic});
}

std::string layout_text_of(const Candidate& candidate) {
  Plan plan;
  plan.keys = keys_of(candidate);
  const JobLayout& layout = candidate.job.layout;
  for (size_t i = 0; layout.has_uneven_stages() && i < layout.stages.size(); ++i) {
    const JobLayout own = layout.of_stage(i);
    plan.stages.push_back({layout.stages[i].blocks, 0, own.dp * own.tp, own.dp, own.tp, {}});
  }
  return plan.layout_text();
}

Plan plan_of(const Config& config, const Cluster& cluster, const Candidate& candidate, const Simulation& s) {
  const JobLayout& l = candidate.job.layout;
  Plan plan;
  plan.model = config.model;
  plan.world_size = l.num_devices();
  plan.cluster = cluster.name;
  plan.keys = keys_of(candidate);
  plan.keys.compute = config.precision.compute;
  const bool is_derived = derived_leaves(l.global_batch / l.micro_batch) % l.dp == 0;
  plan.keys.leaves = is_given(config, "train.leaves") ? config.train.leaves : is_derived ? 0 : l.dp;
  if (is_given(config, "train.recompute")) plan.keys.recompute = config.train.recompute;
  plan.predicted = prediction_of(s);

  const Graph graph = graph_for(config, candidate.job, cluster, l.micro_batch * l.dp);
  Partition cut;
  for (const StageCost& stage : s.stages) cut.push_back(stage.blocks);
  const std::vector<int64_t> first = first_devices(s);
  std::map<std::pair<int64_t, int64_t>, IntraOpPlan> known;
  for (size_t i = 0; i < cut.size(); ++i) {
    const JobLayout own = l.of_stage(i);
    PlanStage stage;
    stage.layers = cut[i];
    stage.dp = own.dp;
    stage.tp = own.tp;
    stage.first_device = first[static_cast<size_t>(s.schedule.rank_of_stage[i])];
    stage.num_devices = own.dp * own.tp * own.cp;
    const auto [entry, is_new] = known.try_emplace({own.dp, own.tp});
    if (is_new) entry->second = operators_on(graph, cluster, own);
    if (entry->second.proof != ChoiceProof::kInfeasible) {
      stage.placements = placements_of(graph, entry->second, stage.layers, {own.dp, own.tp});
    }
    plan.stages.push_back(std::move(stage));
  }
  if (l.pp > 1) plan.keys.split = partition_to_text(cut);
  return plan;
}

}  // namespace trireme
