// A backward pass in two halves: gradients of the inputs at once, gradients of the weights later. The bits are those of
// one backward pass.
//
// [Note: Split backward]
// Some nodes of the graph lead to an input (·), others only to weights (w). The first half runs the engine for the
// inputs only, which computes nothing for the edges · ── w; hooks keep the gradients that arrive at every · with such
// an edge. Then these nodes lose their edges to each other; once the outputs are released, so is everything in between.
// What is left are small graphs, one per used weight. The second half is one ordinary run of the engine over all of
// them, starting from the kept gradients. Outputs that lead to no input just wait for the second half.
//
//   output ──▶ · ──▶ · ──▶ · ──▶ input            · ──▶ w      · ──▶ w
//              │           │               then   ▲            ▲
//              ▼           ▼                      kept         kept
//              w           w
//
// So sums over several uses of a weight run in the order of a whole backward pass, and hooks on parameters are called
// as usual.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "trireme/tensor/tensors.h"

namespace trireme {

/// Owner: Executor, one per micro-batch in flight. Threads: one. Fails with what autograd throws.
class SplitBackward {
 public:
  /// `inputs` are the leaves that `outputs` were computed from. Those that do not require gradients get none; if none
  /// does, run_weights() does all the work.
  SplitBackward(Tensors outputs, Tensors inputs);
  ~SplitBackward();
  SplitBackward(const SplitBackward&) = delete;

  /// First half. `gradients`: one per output; empty if the only output is a scalar loss. Returns the gradient of each
  /// input, undefined if the input does not require one or does not affect the outputs.
  Tensors run_inputs(const Tensors& gradients);
  /// Second half: adds gradients to the parameters' `.grad`, hooks included.
  void run_weights();

 private:
  class Keep;
  struct WeightNode;
  void find_weight_nodes(const std::unordered_map<torch::autograd::Node*, bool>& leads);
  void cut();

  Tensors outputs_, inputs_;
  // For the second half:
  std::vector<WeightNode> weight_nodes_;
  torch::autograd::edge_list roots_;  ///< outputs that lead to no input
  Tensors root_gradients_;
};

}  // namespace trireme
