// The end of a step on a GPU: gradient norm, clipping and optimizer, without the host in between.
//
// Values that change from step to step are written before the step and read after it, so everything in between can be
// one captured graph. Owner: update policies. Threads: one. In a build without CUDA the constructor throws Error.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "trireme/train/weight_update.h"

namespace trireme {

class DeviceUpdate : public WeightUpdate {
 public:
  DeviceUpdate(const Config& config, ModelPart& part);
  ~DeviceUpdate() override;

  /// Enqueues the update, without a norm and so without clipping.
  void apply(int64_t update, double lr, double factor) override;

  /// Call it before enqueue(). `update`: updates before this one; `factor` scales the gradients.
  void prepare(int64_t update, double lr, double factor);
  /// Enqueues norm and update, which does nothing if the norm is not finite, and a copy of `values` to the host. Pass
  /// `norm`, of the gradient sums, if this rank holds only a part of the model; unset: the device computes it.
  void enqueue(const torch::Tensor& values, std::optional<double> norm);
  struct Outcome {
    double gradient_norm = 0;
    torch::Tensor values;  ///< host copy
  };
  /// Waits for the step and returns its outcome.
  Outcome read();

 private:
  std::vector<double> block_squares() override;

  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme
