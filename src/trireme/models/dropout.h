// Dropout whose mask is a function of (seed, layer name, step, global element): the same in every layout, and the same
// again when a forward is repeated.
#pragma once

#include <torch/nn/module.h>

#include <string>

namespace trireme {

/// In training mode, sets elements to 0 with probability p and divides the others by 1 − p; reads the thread's
/// RandomScope and throws Error where there is none. In evaluation mode, or with p = 0, gives its input.
class Dropout : public torch::nn::Module {
 public:
  /// `name` keys the stream of random numbers: unique in the model.
  Dropout(double p, std::string name);
  /// The first dim of `x` is the micro-batch's samples. Element i of micro-batch m takes number m · elements + i, so
  /// that masks belong to samples, however the step's samples are cut into micro-batches of one size.
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Whether forward() changes its input now.
  bool is_active() const { return p_ != 0 && is_training(); }

 private:
  double p_;
  std::string name_;
};

}  // namespace trireme
