// Cuts a module that is no sequence into layers for a Pipeline, at points of its graph.
//
//   auto layers = cut_module(*model, example, [&](const auto& x) { return model->forward(x); }, {"decoder", "head"});
//   Pipeline pipeline(world.comm(), layers, {.num_micro_batches = 8});
//
// What crosses a cut is found: skip connections pass through the layers between. Several tensors travel as one; those
// of integers and booleans as float32, so they must be below 2^24.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/tensor/capture.h"

namespace trireme {

/// Layers that begin at these calls (the first at 0, whether it is given or not) of a graph with one input. Each has
/// the parameters that its calls use, the module's own tensors; names have '/' for '.'. Throws UsageError that names
/// the tensors where types of floating numbers differ in one cut.
std::vector<torch::nn::AnyModule> cut_captured(const CapturedGraph& graph, std::vector<int> first_calls);

/// The call at which a cut point is: a name that mark() gave, or a module ("decoder", "blocks.3") or parameter, before
/// its first use. Throws UsageError with the names that there are.
int find_cut(const CapturedGraph& graph, const std::string& point);

/// `example` has the sizes of a micro-batch. Layers may only be called with such.
std::vector<torch::nn::AnyModule> cut_module(torch::nn::Module& module, const torch::Tensor& example,
                                             const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                                             const std::vector<std::string>& points);

}  // namespace trireme
