// Running statistics of norms, as what a whole step leaves behind.
//
// [Note: Running statistics]
// A norm that follows its inputs changes its buffers in each forward pass. So they would depend on which replica
// computes which micro-batch, and a pass that is computed again would count twice. Here a forward pass in training mode
// only leaves what it has seen; the runtime averages that over the step's micro-batches in the order of gradients and
// moves the running buffers once. BatchNorm (models/batch_norm.h) is written so. torch::nn::BatchNorm1d, 2d and 3d are
// made so: in training mode their running buffers are scratch, with momentum 1, and the real ones are set aside.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// Sums over the samples of a micro-batch that become buffers after the step, such as BatchNorm's running statistics.
/// They are averaged over micro-batches in the order of gradients, then running = running + momentum (mean − running).
struct Statistic {
  std::string buffer;  ///< name of the running buffer
  torch::Tensor running;
  const torch::Tensor* observed;         ///< what the last forward in training mode saw; same shape as `running`
  std::optional<double> momentum = 0.1;  ///< none: the mean of all steps
  torch::Tensor num_steps = {};          ///< a counter that goes with it; undefined where there is none
  bool counts = false;                   ///< this one moves the counter
};

/// A step has seen `mean`. Without gradients.
void move_statistic(const Statistic& statistic, const torch::Tensor& mean);

/// A norm of torch::nn that leaves its running buffers to the step, as long as this lives.
class FollowedNorm {
 public:
  virtual ~FollowedNorm() = default;
  /// After the norm has changed to training or evaluation mode: which tensors it uses.
  virtual void set_mode(bool training) = 0;
  /// `name` is the module's.
  virtual void list_statistics(const std::string& name, std::vector<Statistic>& all) const = 0;
};

/// Null for a module that follows nothing.
std::unique_ptr<FollowedNorm> follow_norm(torch::nn::Module& module);

}  // namespace trireme
