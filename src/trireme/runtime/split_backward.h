// A backward pass in two halves: gradients of the inputs at once, gradients of the weights later. Bit for bit what one
// backward pass gives.
//
// [Note: Split backward]
// Of the graph's nodes, some lead to an input (·) and some only to weights (w). The first half runs the engine for the
// inputs alone, which computes nothing for the edges · ── w; hooks keep the gradients that arrive at every · with such
// an edge. Then these nodes lose their edges to each other, and with the outputs everything in between is freed. What
// is left are small graphs, one for each weight that is used, and the second half is one ordinary run of the engine
// over them all, from the gradients that were kept. Outputs that lead to no input wait for the second half as they are.
//
//   output ──▶ · ──▶ · ──▶ · ──▶ input            · ──▶ w      · ──▶ w
//              │           │               then   ▲            ▲
//              ▼           ▼                      kept         kept
//              w           w
//
// So sums over several uses of a weight run in the order of the whole backward pass, and hooks on parameters are
// called as usual.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "trireme/tensor/tensors.h"

namespace trireme {

/// Owner: the runtime, one for each micro-batch under way. Threads: one. Fails with what autograd throws.
class SplitBackward {
 public:
  /// `inputs` are the leaves from which `outputs` were computed. Those that want no gradient get none; where none wants
  /// one, run_weights() does all.
  SplitBackward(Tensors outputs, Tensors inputs);
  ~SplitBackward();
  SplitBackward(const SplitBackward&) = delete;

  /// First half. `gradients`: one for each output; none at all: the only output is a scalar loss. Returns the gradient
  /// of each input, undefined where it wants none or does not matter for the outputs.
  Tensors run_inputs(const Tensors& gradients);
  /// Second half: gradients are added to the parameters' `.grad`, hooks included.
  void run_weights();

 private:
  class Keep;
  struct WeightNode;
  void find_weight_nodes(const std::unordered_map<torch::autograd::Node*, bool>& leads);
  void cut();

  Tensors outputs_, inputs_;
  // Of the second half.
  std::vector<WeightNode> weight_nodes_;
  torch::autograd::edge_list roots_;  ///< outputs that lead to no input
  Tensors root_gradients_;
};

}  // namespace trireme
