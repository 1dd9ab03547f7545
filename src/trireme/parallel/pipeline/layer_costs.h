// What the layers of a sequence cost, measured: for cutting a model into the stages of a Pipeline.
//
//   const LayerCosts costs = measure_layers(world.comm(), model, example);
//   Pipeline pipeline(world.comm(), model, {.num_micro_batches = 8, .costs = costs.seconds});
//
// With a limit on memory, the cut is partition()'s (program/schedules/partition.h), which takes all three lists; give
// it to the Pipeline as its split.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

/// One value a layer.
struct LayerCosts {
  std::vector<double> seconds;             ///< of a forward and a backward pass, the least of several
  std::vector<uint64_t> bytes;             ///< of its parameters and their gradients
  std::vector<uint64_t> activation_bytes;  ///< what a forward pass leaves for the backward pass, its output included;
                                           ///< on a GPU 0, where nobody counts
};

/// `example` has the sizes of a micro-batch. All ranks of `comm` call it, and all get what rank 0 has measured. The
/// layers' parameters, gradients and buffers are then as before; dropout has drawn random numbers.
LayerCosts measure_layers(Communicator& comm, std::vector<torch::nn::AnyModule> layers, const torch::Tensor& example);
LayerCosts measure_layers(Communicator& comm, torch::nn::Sequential model, const torch::Tensor& example);

}  // namespace trireme
