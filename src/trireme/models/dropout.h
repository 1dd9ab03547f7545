// Dropout whose mask depends only on (seed, layer name, step, global element): the same in every layout, and again when
// a forward pass is repeated.
#pragma once

#include <torch/nn/module.h>

#include <string>

namespace trireme {

/// In training mode, sets elements to 0 with probability p and divides the others by 1 − p; reads the thread's
/// RandomScope and throws Error if there is none. In evaluation mode, or with p = 0, returns its input.
class Dropout : public torch::nn::Module {
 public:
  /// `name` keys the random stream, so it must be unique in the model.
  Dropout(double p, std::string name);
  /// The first dim of `x` is the samples of the micro-batch. Element i of micro-batch m uses number m · elements + i,
  /// so masks belong to samples, however a step's samples are split into micro-batches of equal size.
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Whether forward() changes its input in the current mode.
  bool is_active() const { return p_ != 0 && is_training(); }

 private:
  double p_;
  std::string name_;
};

}  // namespace trireme
