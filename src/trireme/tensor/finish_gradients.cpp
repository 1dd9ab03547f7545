#include "trireme/tensor/finish_gradients.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

class BringHome : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& leaf) override {
    const at::NoGradGuard no_grad;
    at::Tensor& gradient = leaf.mutable_grad();
    if (!gradient.defined() || !is_mesh_tensor(gradient)) return;
    gradient = start_redistribute(gradient, placements_of(leaf));
  }
};

}  // namespace

void finish_gradient(const at::Tensor& leaf) {
  mesh_of(leaf);  // throws for a plain tensor
  if (!leaf.is_leaf() || !leaf.requires_grad()) {
    throw UsageError("only a leaf with requires_grad has a gradient of its own", "give the parameters themselves");
  }
  if (torch::autograd::impl::post_acc_grad_hooks(leaf) != nullptr) {
    throw UsageError("the gradient of this parameter goes elsewhere already", "call finish_gradient before others");
  }
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<BringHome>());
}

bool finishes_gradient(const at::Tensor& leaf) {
  return dynamic_cast<BringHome*>(torch::autograd::impl::post_acc_grad_hooks(leaf).get()) != nullptr;
}

}  // namespace trireme
