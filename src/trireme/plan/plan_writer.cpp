#include "trireme/plan/plan_writer.h"

#include <map>

#include "trireme/plan/graph/intra_op.h"
#include "trireme/program/reduction_tree.h"
#include "trireme/simulate/step_costs.h"

namespace trireme {
namespace {

IntraOpPlan operators_on(const Graph& graph, const Cluster& cluster, const Layout& layout) {
  IntraOpProblem problem{
      &graph, cluster, {{static_cast<int>(layout.dp), static_cast<int>(layout.tp)}}, {.type = layout.compute}};
  problem.by_recipe = true;
  return plan_operators(problem);
}

}  // namespace

Graph graph_for(const Job& job, const Cluster& cluster, int64_t samples) {
  return graph_of(
      job.model, samples,
      {bytes_of(job.layout.compute), behaviour_of(job, cluster).flash_attention, cluster.stack.gated_traffic});
}

Plan plan_of(const Config& config, const Cluster& cluster, const Candidate& candidate, const Simulation& s) {
  const Layout& l = candidate.job.layout;
  Plan plan;
  plan.model = config.model;
  plan.world_size = l.num_devices();
  plan.cluster = cluster.name;
  plan.predicted = prediction_of(s);
  Partition cut;
  for (const StageCost& stage : s.stages) cut.push_back(stage.blocks);
  Layout decided = l;
  decided.split = l.pp > 1 ? cut : Partition();
  const bool is_derived = derived_leaves(l.micro_batches()) % l.dp == 0;
  if (!is_given(config, "train.leaves")) decided.leaves = is_derived ? 0 : l.dp;
  plan.layout = planned_layout(plan.model, keys_of(decided));

  const Graph graph = graph_for(candidate.job, cluster, l.micro_batch * l.dp);
  std::vector<Job> jobs;
  for (size_t i = 0; i < cut.size(); ++i) jobs.push_back(candidate.job.of_stage(i));
  const std::vector<int64_t> first = first_devices(jobs, s.schedule);
  std::map<std::pair<int64_t, int64_t>, IntraOpPlan> known;
  for (size_t i = 0; i < cut.size(); ++i) {
    const Layout& own = jobs[i].layout;
    PlanStage stage;
    stage.layers = cut[i];
    stage.dp = own.dp;
    stage.tp = own.tp;
    stage.first_device = first[static_cast<size_t>(s.schedule.rank_of_stage[i])];
    stage.num_devices = width_of(own);
    const auto [entry, is_new] = known.try_emplace({own.dp, own.tp});
    if (is_new) entry->second = operators_on(graph, cluster, own);
    if (entry->second.proof != ChoiceProof::kInfeasible) {
      stage.placements = placements_of(graph, entry->second, stage.layers, {own.dp, own.tp});
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

}  // namespace trireme
