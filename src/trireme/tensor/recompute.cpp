#include "trireme/tensor/recompute.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "trireme/base/error.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

using Part = std::function<Tensors(const Tensors&)>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Autocast state of this thread for one kind of device.
struct AutocastState {
  explicit AutocastState(at::DeviceType device_)
      : device(device_),
        enabled(at::autocast::is_autocast_enabled(device_)),
        type(at::autocast::get_autocast_dtype(device_)),
        cached(at::autocast::is_autocast_cache_enabled()) {}

  void apply() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
    at::autocast::set_autocast_cache_enabled(cached);
  }

  at::DeviceType device;
  bool enabled;
  at::ScalarType type;
  bool cached;
};

/// Thread state that the forward reads. The backward runs on another thread, or on this one when that state has
/// changed.
struct ForwardState : torch::CustomClassHolder {
  ForwardState(Part function_, at::DeviceType device) : function(std::move(function_)), autocast(device) {
    if (const RandomContext* context = RandomScope::current()) random = *context;
  }

  Part function;
  AutocastState autocast;
  std::optional<RandomContext> random;
};

/// Calls the function again with gradients, in the state of its first call.
Tensors call_again(const ForwardState& state, const Tensors& x) {
  struct Restore {
    AutocastState before;
    ~Restore() { before.apply(); }
  };
  const Restore restore{AutocastState(state.autocast.device)};
  std::optional<RandomScope> random;
  if (state.random) random.emplace(*state.random);
  state.autocast.apply();
  return state.function(x);
}

/// `anchor` requires grad so that the result does, too, even if x is data and only parameters need gradients.
class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& anchor, at::TensorList x,
                               const Part& function) {
    context->save_for_backward(x.vec());
    context->set_materialize_grads(false);  // a missing gradient stays undefined, not zeros
    c10::List<bool> differentiable;
    for (const at::Tensor& each : x) differentiable.push_back(each.requires_grad());
    context->saved_data["differentiable"] = differentiable;
    context->saved_data["state"] =
        c10::IValue::make_capsule(c10::make_intrusive<ForwardState>(function, anchor.device().type()));
    Tensors y = function(x.vec());  // autograd is off here
    variable_list constant;
    for (const at::Tensor& each : y) {
      if (!each.is_floating_point()) constant.push_back(each);
    }
    context->mark_non_differentiable(constant);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error("the gradient of what is computed again has no gradient of its own",
                  "call backward without create_graph, or set train.recompute = \"none\"");
    }
    const c10::List<bool> differentiable = context->saved_data["differentiable"].toBoolList();
    variable_list x;
    for (const at::Tensor& each : context->get_saved_variables()) {
      x.push_back(each.detach().requires_grad_(differentiable[x.size()]));
    }
    Tensors y;
    {
      const at::AutoGradMode with_graph(true);
      y = call_again(*c10::static_intrusive_pointer_cast<ForwardState>(context->saved_data["state"].toCapsule()), x);
    }
    variable_list roots, root_gradients;
    for (size_t i = 0; i < y.size(); ++i) {
      if (!y[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(y[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    variable_list result = {at::Tensor()};  // for the anchor
    for (const at::Tensor& each : x) result.push_back(each.requires_grad() ? each.grad() : at::Tensor());
    result.emplace_back();  // for the function
    return result;
  }
};

}  // namespace

Tensors recompute(const Part& function, const Tensors& x) {
  if (!at::GradMode::is_enabled() || x.empty()) return function(x);
  const at::Tensor anchor = at::empty({0}, x[0].options().dtype(at::kFloat)).requires_grad_(true);
  return RecomputeFunction::apply(anchor, at::TensorList(x), function);
}

at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x) {
  return recompute([function](const Tensors& inputs) { return Tensors{function(inputs[0])}; }, Tensors{x})[0];
}

}  // namespace trireme
