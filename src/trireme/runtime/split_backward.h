// A backward pass in two halves: gradients of the input at once, gradients of the weights later. Bit for bit what one
// backward pass gives.
//
// [Note: Split backward]
// Of the graph's nodes, some lead to the input (·) and some only to weights (w). The first half runs the engine for
// the input alone, which computes nothing for the edges · ── w; hooks keep the gradients that arrive at every · with
// such an edge. Then these nodes lose their edges to each other, and with the output everything in between is freed.
// What is left are small graphs, one for each weight that is used, and the second half is one ordinary run of the
// engine over them all, from the gradients that were kept:
//
//   output ──▶ · ──▶ · ──▶ · ──▶ input            · ──▶ w      · ──▶ w
//              │           │               then   ▲            ▲
//              ▼           ▼                      kept         kept
//              w           w
//
// So sums over several uses of a weight run in the order of the whole backward pass, and hooks on parameters are
// called as ever.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace trireme {

/// Owner: the runtime, one for each micro-batch under way. Threads: one. Fails with what autograd throws.
class SplitBackward {
 public:
  /// `input` is the leaf from which `output` was computed; it may want no gradient, and then weights() does all.
  SplitBackward(torch::Tensor output, torch::Tensor input);
  ~SplitBackward();
  SplitBackward(const SplitBackward&) = delete;

  /// First half. `gradient` of the output; undefined: the output is a scalar loss. Returns the input's gradient,
  /// undefined where it wants none or does not matter for the output.
  torch::Tensor run_input(const torch::Tensor& gradient);
  /// Second half: gradients are added to the parameters' `.grad`, hooks included.
  void run_weights();

 private:
  class Keep;
  struct WeightNode;
  void find_weight_nodes();
  void cut();

  torch::Tensor output_, input_;
  torch::Tensor gradient_;  ///< of the output, where all is left to the second half
  bool whole_ = false;      ///< all is
  std::vector<WeightNode> weight_nodes_;
};

}  // namespace trireme
