// What a block of a model costs on one rank of a layout: seconds, parameters, bytes, FLOPs; all of one micro-batch.
//
// A model is a sequence of blocks: embedding, transformer blocks, output layer; or the layers of an image model, as the
// trainer counts them.
// docs/cost_model.md lists every operator that is counted.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/job.h"

namespace trireme {

struct BlockCost {
  std::string name;           ///< "embedding", "block", "output", "linear", …
  double forward = 0;         ///< seconds, with the communication inside it that nothing hides
  double backward_input = 0;  ///< the same; recomputation included
  double backward_weight = 0;
  double exposed = 0;                ///< of these three: communication
  double parameters = 0;             ///< on this rank, before ZeRO
  double expert_parameters = 0;      ///< of those, experts: their replicas are dp/ep
  double longest_tensor = 0;         ///< numbers of the longest parameter
  double activation_bytes = 0;       ///< kept from the forward to the backward pass
  double working_bytes = 0;          ///< needed beside that while the block computes
  double forward_working_bytes = 0;  ///< of those, in the forward pass: what is computed again is there in the other
  double model_flops = 0;            ///< of all ranks that share the micro-batch, forward and backward
  double repeated_flops = 0;         ///< the same, by recomputation
};

/// Of the whole model, in order.
std::vector<BlockCost> block_costs(const Job& job, const Cluster& cluster);

/// Bytes that one transformer block keeps for its backward pass, by the published formulas.
double activation_bytes(const Job& job, bool flash);
/// Trainable numbers of the whole model.
double total_parameters(const ModelShape& model);
/// What goes from stage to stage for a micro-batch: each rank's part.
double message_bytes(const Job& job);

// For this folder.
/// The device as operators of a job see it: on tensors in parts they start later.
Device device_of(const Job& job, const Cluster& cluster);
/// block_costs() of mlp and resnet, but for adding up gradients.
std::vector<BlockCost> image_block_costs(const Job& job, const Cluster& cluster);

}  // namespace trireme
