// Ways to compute an operator of a graph on a mesh, what each costs, and what lies between two of them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/layout/redistribution.h"
#include "trireme/plan/graph/graph.h"
#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/job.h"

namespace trireme {

/// The devices of a stage, as one or two axes; neighbours along the last one are next to each other.
struct StageMesh {
  std::vector<int> sizes;
  int num_devices() const;
  bool operator==(const StageMesh&) const = default;
};

/// One way to compute an operator: placements of its inputs and outputs, one an axis.
struct OperatorStrategy {
  std::vector<std::vector<Placement>> inputs, outputs;
  std::vector<std::vector<Placement>> input_gradients;  ///< as the backward pass makes them
  std::string to_string() const;  ///< of the first input with weights, or the first output: "[shard(0), replicate]"
};

/// All ways that the rules of layout/ have for each operator of the graph, where every cut is even. Cuts come from the
/// samples, tokens and parameters that enter the graph, and go on from result to result. `stand_ins`: an earlier
/// operator that each is like, itself where none; those that another stands for get an empty list. Empty: all for
/// themselves.
std::vector<std::vector<OperatorStrategy>> strategies_of(const Graph& graph, const StageMesh& mesh,
                                                         const std::vector<int>& stand_ins = {});

/// Of activations, what is held between the passes where they are computed again: about what enters the layers.
constexpr double kKeptByRecomputation = 0.1;

/// What the job says of costs.
struct StageSetting {
  NumberType type = NumberType::kBfloat16;
  double gradient_bytes = 2;       ///< of a parameter, as it is summed
  double state_bytes = 16;         ///< of a parameter: weight, gradient, optimizer
  double sharded_state_bytes = 0;  ///< of those, sharded over the ranks that hold the same parameter (ZeRO)
  double micro_batches = 1;        ///< of a step
  double in_flight = 1;            ///< micro-batches whose activations are held
  bool sums_each_micro_batch = false;
  RecomputeKind recompute = RecomputeKind::kNone;
};

/// Costs on the devices of a cluster; a micro-batch's seconds, and bytes. Not for several threads.
class StrategyCosts {
 public:
  StrategyCosts(const Graph& graph, const Cluster& cluster, const StageMesh& mesh, const StageSetting& setting);

  /// Computing, forward and backward, with what is recomputed.
  double computing(const GraphOperator& op, const OperatorStrategy& strategy) const;
  /// Of a step: sums of the gradients of its parameters over the ranks that hold the same.
  double gradient_sums(const GraphOperator& op, const OperatorStrategy& strategy) const;
  /// Moving a tensor from where it was made to where it is used, and its gradient back.
  double moving(const GraphTensor& tensor, const std::vector<Placement>& made, const std::vector<Placement>& used,
                const std::vector<Placement>& gradient) const;
  /// Parameters with all that belongs to them, and activations of the micro-batches in flight.
  double bytes(const GraphOperator& op, const OperatorStrategy& strategy) const;
  double state_bytes(const GraphOperator& op, const OperatorStrategy& strategy) const;
  double activation_bytes(const GraphOperator& op, const OperatorStrategy& strategy) const;

 private:
  double redistribution(const std::vector<Placement>& from, const std::vector<Placement>& to,
                        const std::vector<int64_t>& sizes, double element_bytes) const;
  double local_fraction(const std::vector<Placement>& placements) const;

  const Graph& graph_;
  const Cluster& cluster_;
  StageMesh mesh_;
  StageSetting setting_;
  std::vector<RankGroup> groups_;
  std::vector<int> owner_;  ///< of each parameter: the first operator that uses it, which has its bytes
  mutable std::unordered_map<std::string, double> known_;  ///< redistributions by the bytes that say them
};

}  // namespace trireme
