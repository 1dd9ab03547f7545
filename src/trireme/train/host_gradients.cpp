#include "trireme/train/host_gradients.h"

#include "trireme/tensor/device.h"

namespace trireme {

HostGradients::HostGradients(size_t num_shares, const std::function<torch::Tensor(size_t)>& gradient) {
  for (size_t i = 0; i < num_shares; ++i) {
    gradients_.push_back(gradient(i));
    const auto options = torch::TensorOptions().pinned_memory(gradients_[i].is_cuda());
    copies_.push_back(torch::empty(gradients_[i].sizes(), options));
  }
}

void HostGradients::fetch() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients_.size(); ++i) copies_[i].copy_(gradients_[i], /*non_blocking=*/true);
  if (!gradients_.empty()) synchronize(gradients_[0].device());
}

}  // namespace trireme
