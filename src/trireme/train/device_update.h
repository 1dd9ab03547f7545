// The end of a step on a GPU: norm of the gradients, clipping and the optimizer, without the host in between.
//
// What changes from step to step is written before the step and read after it, so that all between can be one captured
// graph. Owner: the trainer. Threads: one. In a build without CUDA it cannot be made.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/runtime/parameter_store.h"
#include "trireme/train/optimizer.h"

namespace trireme {

class DeviceUpdate {
 public:
  /// `gradient(i)` is where the gradient of entry i will lie, in the same type for all.
  DeviceUpdate(const OptimizerConfig& config, double clip, ParameterStore& parameters, Optimizer& optimizer,
               const std::function<torch::Tensor(size_t entry)>& gradient);
  ~DeviceUpdate();

  /// Before the step: the updates before this one, its learning rate and the factor of the gradients.
  void prepare(int64_t step, double lr, double factor);
  /// Where this rank holds a part of the model: gives the norm of all sums of gradients, from block_squares() of all
  /// ranks. The host then waits for the gradients.
  using NormOfModel = std::function<double()>;
  void set_norm_of_model(NormOfModel norm_of_model);
  /// As append_block_squares() (optimizer/kernels.h), bit by bit, of the gradient of each share. Waits for them.
  std::vector<double> block_squares();
  /// Enqueues norm and update; nothing is updated where the norm is not finite. Also brings `values` to the host.
  void enqueue(const torch::Tensor& values);
  /// Enqueues the update alone, whatever the gradients are: for several in a step, each after its prepare().
  void enqueue_update();
  struct Outcome {
    double gradient_norm = 0;
    bool skipped = false;
    torch::Tensor values;  ///< on the host
  };
  /// After the step, which is waited for.
  Outcome read();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme
