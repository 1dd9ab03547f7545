// Cost of one block of a model on one rank of a layout, per micro-batch: seconds, parameters, bytes, FLOPs.
//
// A model is a sequence of blocks: embedding, transformer blocks, output layer; or the layers of an image model, as the
// trainer numbers them. Pure functions. Threads: all. docs/cost_model.md lists every operator that is counted.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/job.h"

namespace trireme {

struct BlockCost {
  std::string name;           ///< "embedding", "block", "output", "linear", …
  double forward = 0;         ///< seconds, exposed communication included
  double backward_input = 0;  ///< seconds, exposed communication and recomputation included
  double backward_weight = 0;
  double exposed = 0;            ///< exposed communication in the three above
  double parameters = 0;         ///< on this rank, before ZeRO shards them
  double expert_parameters = 0;  ///< expert parameters among them, which have dp/ep replicas
  double longest_tensor = 0;     ///< elements of the largest parameter
  double activation_bytes = 0;   ///< kept from the forward pass to the backward pass
  double working_bytes = 0;      ///< workspace while the block computes, on top of kept activations
  /// Workspace in the forward pass; recomputed activations are needed in the backward pass only.
  double forward_working_bytes = 0;
  double model_flops = 0;     ///< forward and backward, summed over the ranks that compute the micro-batch
  double repeated_flops = 0;  ///< FLOPs of recomputation, summed likewise
};

/// The blocks of the whole model, in order.
std::vector<BlockCost> block_costs(const Job& job, const Cluster& cluster);

/// Activation bytes that one transformer block keeps for its backward pass, by the published formulas.
double activation_bytes(const Job& job, bool flash);
/// Trainable parameters of the whole model.
double total_parameters(const ModelShape& model);
/// Bytes that each rank sends to the next stage per micro-batch.
double message_bytes(const Job& job);

// Internal to this folder.
/// The device as the job's operators see it: under tensor parallelism they start `tensor_us` later.
Device device_of(const Job& job, const Cluster& cluster);
/// block_costs() of mlp and resnet, without the accumulation of gradients.
std::vector<BlockCost> image_block_costs(const Job& job, const Cluster& cluster);

}  // namespace trireme
