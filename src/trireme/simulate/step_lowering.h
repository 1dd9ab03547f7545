// The program of a job: its stages, and the step that the trainer would have with them.
#pragma once

#include <vector>

#include "trireme/program/schedules/partition.h"
#include "trireme/simulate/block_cost.h"

namespace trireme {

/// What one stage costs, a part for each group of gradients: the blocks whose gradients travel together.
struct StagePart {
  double forward = 0, backward_input = 0, backward_weight = 0;  ///< seconds
  double parameters = 0, expert_parameters = 0;
};
struct StageCost {
  LayerRange blocks;
  std::vector<StagePart> parts;  ///< in the order of the forward pass; group g is part n-1-g
  StagePart sum;
  double exposed = 0;  ///< seconds of communication in a forward and a backward pass that nothing hides
  double activation_bytes = 0, working_bytes = 0, forward_working_bytes = 0;
  double longest_tensor = 0;  ///< numbers of it
  /// What a computation of the stage needs beside the activations that are kept.
  double working_bytes_of(OpCode op) const { return op == OpCode::kForward ? forward_working_bytes : working_bytes; }
};

/// Blocks of each stage: equal numbers of transformer blocks where they divide, else embedding and output layer count
/// as one block each, else by time. By time as well where stages have `speeds`. Layers of image models by their FLOPs,
/// as the trainer cuts them. Throws UsageError for more stages than blocks.
Partition cut_into_stages(const std::vector<BlockCost>& blocks, const Job& job, int num_stages,
                          std::vector<double> speeds = {});
std::vector<StageCost> stage_costs(const std::vector<BlockCost>& blocks, const Partition& stages, double bucket_bytes,
                                   double bytes_a_parameter);

/// [Note: Folding]
/// Replicas, tensor ranks and context ranks do the same at the same time, so one replica's pipeline stands for all, and
/// its collectives cost what the whole group costs. A layout that the trainer can run has the trainer's shape,
/// step_shape(), with the parts of the stages for its groups. Of others, which have more replicas than leaves or cut
/// samples, two replicas stand for all; `fold` false takes them all. Where replicas exchange anything but sums of
/// gradients, each stage has one more group, as in the trainer: its values (loss, stop flag), which are always summed.
StepShape played_shape(const Job& job, const std::vector<StageCost>& stages, const Schedule& schedule,
                       bool fold = true);

}  // namespace trireme
