// Measures the cost of each layer of a sequence, for cutting a model into the stages of a Pipeline.
//
//   const LayerCosts costs = measure_layers(world.comm(), model, example);
//   Pipeline pipeline(world.comm(), model, {.num_micro_batches = 8, .costs = costs.seconds});
//
// With a memory limit, call partition() (program/schedules/partition.h), which takes all three lists, and give its
// result to the Pipeline as `split`.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

/// One value per layer.
struct LayerCosts {
  std::vector<double> seconds;             ///< time of a forward and a backward pass, the least of several
  std::vector<uint64_t> bytes;             ///< bytes of parameters and their gradients
  std::vector<uint64_t> activation_bytes;  ///< kept from the forward to the backward pass, including the output;
                                           ///< 0 on a GPU, where they are not counted
};

/// `example` has the sizes of a micro-batch. Collective: rank 0 measures, and all ranks get its result. Parameters,
/// gradients and buffers of the layers are unchanged afterwards; dropout has drawn random numbers on rank 0.
LayerCosts measure_layers(Communicator& comm, std::vector<torch::nn::AnyModule> layers, const torch::Tensor& example);
LayerCosts measure_layers(Communicator& comm, torch::nn::Sequential model, const torch::Tensor& example);

}  // namespace trireme
