// Running statistics of norms, as a result of a whole step.
//
// [Note: Running statistics]
// A norm that tracks running statistics changes its buffers in each forward pass. So they would depend on which replica
// computes which micro-batch, and a recomputed pass would count twice. Here a forward pass in training mode only
// records what it observed; the runtime averages that over the step's micro-batches, in the order of gradients, and
// updates the running buffers once. BatchNorm (models/batch_norm.h) is built that way. torch::nn::BatchNorm1d, 2d and
// 3d are adapted: in training mode their running buffers are scratch, with momentum 1, and the real ones are set aside.
// A norm that is in evaluation mode itself while its model trains, as in a frozen backbone, uses the real ones and
// leaves them as they are.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// Sums over the samples of a micro-batch that update buffers after the step, such as BatchNorm's running statistics.
/// They are averaged over micro-batches in the order of gradients; then running = running + momentum (mean − running).
struct Statistic {
  std::string buffer;  ///< name of the running buffer
  torch::Tensor running;
  const torch::Tensor* observed;         ///< observed by the last forward in training mode; same shape as `running`
  std::optional<double> momentum = 0.1;  ///< nullopt: the mean of all steps
  torch::Tensor num_steps = {};          ///< step counter of the norm; undefined if it has none
  bool counts = false;                   ///< this statistic increments the counter
};

/// Updates the running buffer by the mean of a step. Runs without gradients.
void move_statistic(const Statistic& statistic, const torch::Tensor& mean);

/// While it lives, a torch::nn norm leaves its running buffers to the end of the step.
class FollowedNorm {
 public:
  virtual ~FollowedNorm() = default;
  /// Selects the buffers that the norm uses. Call it after the model has changed its mode; a norm that is in evaluation
  /// mode itself uses its running statistics in any case.
  virtual void set_mode(bool training) = 0;
  /// Appends the norm's statistics; `name` is the module's.
  virtual void list_statistics(const std::string& name, std::vector<Statistic>& all) const = 0;
};

/// Null for a module without running statistics.
std::unique_ptr<FollowedNorm> follow_norm(torch::nn::Module& module);

}  // namespace trireme
