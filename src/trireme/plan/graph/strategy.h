// Strategies to compute an operator of a graph on a mesh, their costs, and the costs of redistribution between them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/layout/redistribution.h"
#include "trireme/plan/graph/graph.h"
#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/job.h"

namespace trireme {

/// The devices of a stage as a mesh of one or two axes; neighbours along the last axis are adjacent.
struct StageMesh {
  std::vector<int> sizes;
  int num_devices() const;
  bool operator==(const StageMesh&) const = default;
};

/// One strategy of an operator: placements of its inputs and outputs, one per axis.
struct OperatorStrategy {
  std::vector<std::vector<Placement>> inputs, outputs;
  std::vector<std::vector<Placement>> input_gradients;  ///< placements in which the backward pass produces them
  /// Placements of the first parameter among the inputs, or of the first output: "[shard(0), replicate]".
  std::string to_string() const;
};

/// Returns every strategy that the rules of layout/ allow for each operator of the graph, with even shards only.
/// Shardings start from the samples, tokens and parameters that enter the graph and propagate from result to result.
/// `stand_ins`: an earlier equal operator for each, or itself; operators with another stand-in get an empty list.
/// Empty: no stand-ins.
std::vector<std::vector<OperatorStrategy>> strategies_of(const Graph& graph, const StageMesh& mesh,
                                                         const std::vector<int>& stand_ins = {});

/// Fraction of the activations that is kept with recomputation: about the layers' inputs.
constexpr double kKeptByRecomputation = 0.1;

/// Settings of the job that determine costs.
struct StageSetting {
  NumberType type = NumberType::kBfloat16;
  double gradient_bytes = 2;       ///< bytes per parameter of a reduced gradient
  double state_bytes = 16;         ///< bytes per parameter: weight, gradient, optimizer state
  double sharded_state_bytes = 0;  ///< the part of state_bytes that ZeRO shards
  double micro_batches = 1;        ///< micro-batches per step
  double in_flight = 1;            ///< micro-batches whose activations are held at once
  bool sums_each_micro_batch = false;
  RecomputeKind recompute = RecomputeKind::kNone;
};

/// Costs of strategies on a cluster: seconds per micro-batch, and bytes. Keeps references to its arguments. Threads:
/// one, as it caches redistributions.
class StrategyCosts {
 public:
  StrategyCosts(const Graph& graph, const Cluster& cluster, const StageMesh& mesh, const StageSetting& setting);

  /// Seconds of the forward and the backward pass, recomputation included.
  double computing(const GraphOperator& op, const OperatorStrategy& strategy) const;
  /// Seconds per step to reduce the gradients of its parameters over the ranks that hold the same shards.
  double gradient_sums(const GraphOperator& op, const OperatorStrategy& strategy) const;
  /// Seconds to redistribute a tensor between its producer and its user, and its gradient back.
  double moving(const GraphTensor& tensor, const std::vector<Placement>& made, const std::vector<Placement>& used,
                const std::vector<Placement>& gradient) const;
  /// Bytes of parameters with gradients and optimizer state, and of the activations of micro-batches in flight.
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
  std::vector<int> owner_;  ///< first operator that uses each parameter, where its bytes count
  mutable std::unordered_map<std::string, double> known_;  ///< cache of redistributions, keyed by their encoding
};

}  // namespace trireme
