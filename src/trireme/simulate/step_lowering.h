// From a job to the shape of its step: stages, their costs, and the StepShape that the trainer would use.
#pragma once

#include <vector>

#include "trireme/program/schedules/partition.h"
#include "trireme/simulate/block_cost.h"

namespace trireme {

/// Cost of one stage, with one part per gradient bucket: the blocks whose gradients are reduced together.
struct StagePart {
  double forward = 0, backward_input = 0, backward_weight = 0;  ///< seconds
  double parameters = 0, expert_parameters = 0;
};
struct StageCost {
  LayerRange blocks;
  std::vector<StagePart> parts;  ///< in the order of the forward pass; of n parts, group g is part n-1-g
  StagePart sum;
  double exposed = 0;  ///< seconds of exposed communication in a forward and a backward pass
  double activation_bytes = 0, working_bytes = 0, forward_working_bytes = 0;
  double longest_tensor = 0;  ///< elements of the largest parameter
  /// Workspace of a computation of the stage, on top of kept activations.
  double working_bytes_of(OpCode op) const { return op == OpCode::kForward ? forward_working_bytes : working_bytes; }
};

/// Partitions blocks into stages: equal numbers of transformer blocks if they divide evenly; else equal numbers of
/// blocks, embedding and output layer included; else by time. With `speeds` always by time, weighted by them. Image
/// models are partitioned by FLOPs, as in the trainer. Throws UsageError for more stages than blocks.
Partition cut_into_stages(const std::vector<BlockCost>& blocks, const Job& job, int num_stages,
                          std::vector<double> speeds = {});
std::vector<StageCost> stage_costs(const std::vector<BlockCost>& blocks, const Partition& stages, double bucket_bytes,
                                   double bytes_a_parameter);

/// [Note: Folding]
/// Replicas, tensor ranks and context ranks run in lockstep, so one replica's pipeline represents all of them, and its
/// collectives cost what they cost the whole group. If the trainer can run the layout, the shape is the trainer's
/// step_shape(), whose gradient groups are the parts of the stages. Other layouts, with more replicas than leaves or
/// with context parallelism, are represented by two replicas; `fold` false simulates all of them. If replicas exchange
/// anything but sums of gradients, each stage has one more group, as in the trainer: its values (loss, stop flag),
/// which are always summed.
StepShape played_shape(const Job& job, const std::vector<StageCost>& stages, const Schedule& schedule,
                       bool fold = true);

}  // namespace trireme
