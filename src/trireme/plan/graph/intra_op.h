// The intra-operator pass: chooses how each operator of some layers is sharded over the mesh of their stage, minimizing
// the time of computing and communicating within a memory limit.
#pragma once

#include "trireme/plan/graph/choice.h"
#include "trireme/plan/graph/strategy.h"
#include "trireme/program/schedules/partition.h"

namespace trireme {

struct IntraOpProblem {
  const Graph* graph = nullptr;  ///< must outlive the call
  Cluster cluster;
  StageMesh mesh;
  StageSetting setting;
  LayerRange layers = {0, 0};  ///< range of layers; {0, 0}: all
  double limit_bytes = 0;      ///< memory limit of a device; 0: none
  bool fold = true;            ///< [Note: Folding layers]
  /// Fixes parameters to the trainer's placements: replicated along the first axis; along the last one sharded by its
  /// recipe or replicated. Activations are still chosen.
  bool by_recipe = false;
};

struct IntraOpPlan {
  std::vector<OperatorStrategy> strategies;  ///< strategy of each operator of the graph; empty for other layers
  double seconds = 0;                        ///< seconds of a micro-batch, with gradient sums amortized over the step
  double bytes = 0;                          ///< bytes per device
  std::vector<double> layer_seconds;  ///< seconds of each layer; a redistribution counts for the layer that needs it
  /// Bytes of each layer; activations of one micro-batch.
  std::vector<double> layer_state_bytes, layer_activation_bytes;
  double least_bytes = 0;  ///< least possible bytes, if nothing fits
  ChoiceProof proof = ChoiceProof::kInfeasible;
};

/// The choice problem, and the meaning of its choices.
struct IntraOpChoices {
  ChoiceProblem problem;
  std::vector<int> operators;                             ///< of each node
  std::vector<std::vector<OperatorStrategy>> strategies;  ///< of each node
};
IntraOpChoices choices_of(const IntraOpProblem& problem);

/// Throws Error for operators without a rule.
IntraOpPlan plan_operators(const IntraOpProblem& problem);

/// Returns the name of a parameter, which equal layers have in common: "layers.*.mlp.up.weight".
std::string name_in_plan(const std::string& parameter);

/// Returns placements of parameters by name, one line each, equal layers once: "layers.*.mlp.up.weight", "[replicate,
/// shard(0)]". With `axis_sizes`, axes of one device count as replicated.
std::vector<std::pair<std::string, std::string>> placements_of(const Graph& graph, const IntraOpPlan& plan,
                                                               const LayerRange& layers,
                                                               const std::vector<int64_t>& axis_sizes = {});

/// Returns the trainer's placements for these replicas and tensor ranks in the same form. If layers with one name
/// alternate, the name has a line for each placement.
std::vector<std::pair<std::string, std::string>> trained_placements(const Graph& graph, const LayerRange& layers,
                                                                    int64_t dp, int64_t tp);

}  // namespace trireme
