// The end of a step on a GPU: norm of the gradients, clipping and the optimizer, without the host in between.
//
// What changes from step to step is written before the step and read after it, so that all between can be one captured
// graph. Owner: update policies. Threads: one. In a build without CUDA it cannot be made.
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

  /// Enqueued, without a norm.
  void apply(int64_t update, double lr, double factor) override;

  /// Before enqueue(): the updates before this one, its learning rate and the factor of the gradients.
  void prepare(int64_t update, double lr, double factor);
  /// Enqueues norm and update; nothing is updated where the norm is not finite. Also brings `values` to the host.
  /// `norm`, of the gradients' sums, is known where this rank holds a part of the model.
  void enqueue(const torch::Tensor& values, std::optional<double> norm);
  struct Outcome {
    double gradient_norm = 0;
    torch::Tensor values;  ///< on the host
  };
  /// After the step, which is waited for.
  Outcome read();

 private:
  std::vector<double> block_squares() override;

  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme
