// A GPU's gradients on the host, for an optimizer there: copies in pinned memory, in float32, which the GPU makes of
// them.
//
// Owner: the trainer. Threads: one. Blocking: fetch(), until the gradients are there; fails as synchronize() does.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace trireme {

class HostGradients {
 public:
  /// `gradient(i)` is where that of share i lies, flat, on the device. It must not move.
  HostGradients(size_t num_shares, const std::function<torch::Tensor(size_t share)>& gradient);

  /// Copies all of them, after what was started for the device so far.
  void fetch();
  /// As of the last fetch(), in float32.
  const torch::Tensor& of_share(size_t share) const { return copies_[share]; }

 private:
  std::vector<torch::Tensor> gradients_, copies_;
};

}  // namespace trireme
