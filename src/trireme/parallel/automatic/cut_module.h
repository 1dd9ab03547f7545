// Cuts any module, not just a sequence, into layers for a Pipeline, at points of its graph.
//
//   auto layers = cut_module(*model, example, [&](const auto& x) { return model->forward(x); }, {"decoder", "head"});
//   Pipeline pipeline(world.comm(), layers, {.num_micro_batches = 8});
//
// Tensors that cross a cut are found automatically: skip connections pass through the layers between. Several tensors
// are sent as one, with integers and booleans in the dtype of the others (float32 if there are none), which must
// represent them exactly: in float32, integers below 2^24.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/tensor/capture.h"

namespace trireme {

/// Layers that begin at these calls of a graph with one input; 0 may be left out. Each has the parameters that its
/// calls use, the module's own tensors; their names have '/' for '.'. Throws UsageError, naming place and dtypes, if
/// floating-point tensors that cross one cut differ in dtype.
std::vector<torch::nn::AnyModule> cut_captured(const CapturedGraph& graph, std::vector<int> first_calls);

/// The call at a cut point: a name given to mark(), or the first use of a module ("decoder", "blocks.3") or parameter.
/// Throws UsageError that lists the possible names.
int find_cut(const CapturedGraph& graph, const std::string& point);

/// Captures `forward` and cuts it at `points`. `example` has the sizes of a micro-batch; layers only accept these.
/// Throws as capture() and the functions above.
std::vector<torch::nn::AnyModule> cut_module(torch::nn::Module& module, const torch::Tensor& example,
                                             const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                                             const std::vector<std::string>& points);

}  // namespace trireme
