// The intra-operator pass: how each operator of some layers is cut over the mesh of their stage, at the least cost of
// computing and moving within a memory limit.
#pragma once

#include "trireme/plan/graph/choice.h"
#include "trireme/plan/graph/strategy.h"
#include "trireme/program/schedules/partition.h"

namespace trireme {

struct IntraOpProblem {
  const Graph* graph = nullptr;  ///< outlives the call
  Cluster cluster;
  StageMesh mesh;
  StageSetting setting;
  LayerRange layers = {0, 0};  ///< {0, 0}: all
  double limit_bytes = 0;      ///< of a device; 0: none
  bool fold = true;            ///< [Note: Folding layers]
  /// Parameters lie as the trainer's dp and tp put them: whole along the first axis, and along the last one cut by its
  /// recipe or whole. What is between them is still chosen.
  bool by_recipe = false;
};

struct IntraOpPlan {
  std::vector<OperatorStrategy> strategies;  ///< of each operator of the graph; those of other layers are empty
  double seconds = 0;                        ///< of a micro-batch, with gradients' sums spread over all of a step
  double bytes = 0;                          ///< of a device
  std::vector<double> layer_seconds;         ///< of each layer; a movement counts for the layer that needs it
  std::vector<double> layer_state_bytes, layer_activation_bytes;  ///< the latter of one micro-batch
  double least_bytes = 0;                                         ///< where nothing keeps the limit
  ChoiceProof proof = ChoiceProof::kInfeasible;
};

/// The choices as numbers, and what they stand for.
struct IntraOpChoices {
  ChoiceProblem problem;
  std::vector<int> operators;                             ///< of each node
  std::vector<std::vector<OperatorStrategy>> strategies;  ///< of each node
};
IntraOpChoices choices_of(const IntraOpProblem& problem);

/// Throws Error for a graph whose operators have no rule.
IntraOpPlan plan_operators(const IntraOpProblem& problem);

/// Layers that are alike have one name: "layers.*.mlp.up.weight".
std::string name_in_plan(const std::string& parameter);

/// Placements of parameters by their names: one line each, layers that are alike once. "layers.*.mlp.up.weight":
/// "[replicate, shard(0)]". Axes of one device, where `axis_sizes` are given, cut nothing.
std::vector<std::pair<std::string, std::string>> placements_of(const Graph& graph, const IntraOpPlan& plan,
                                                               const LayerRange& layers,
                                                               const std::vector<int64_t>& axis_sizes = {});

/// The same lines for what the trainer does with so many replicas and tensor ranks. Where layers that have one name are
/// cut in turns, the name has a line for each.
std::vector<std::pair<std::string, std::string>> trained_placements(const Graph& graph, const LayerRange& layers,
                                                                    int64_t dp, int64_t tp);

}  // namespace trireme
