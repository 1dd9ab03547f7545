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

using Part = std::function<at::Tensor(const at::Tensor&)>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Autocast of a kind of device on this thread.
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

/// What a forward reads of its thread. The backward runs on another one, or on this one when all of it has changed.
struct ForwardState : torch::CustomClassHolder {
  ForwardState(Part function_, at::DeviceType device) : function(std::move(function_)), autocast(device) {
    if (const RandomContext* context = RandomScope::current()) random = *context;
  }

  Part function;
  AutocastState autocast;
  std::optional<RandomContext> random;
};

/// The function with gradients, as it was called first.
at::Tensor call_again(const ForwardState& state, const at::Tensor& x) {
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

/// `anchor` needs a gradient, so that the result does too where x is data and only parameters are to be differentiated.
class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& anchor,
                            const Part& function) {
    (void)anchor;
    context->save_for_backward({x});
    context->saved_data["x_has_gradient"] = x.requires_grad();
    context->saved_data["state"] =
        c10::IValue::make_capsule(c10::make_intrusive<ForwardState>(function, x.device().type()));
    return function(x);  // autograd is off here
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error("the gradient of what is computed again has no gradient of its own",
                  "call backward without create_graph, or set train.recompute = \"none\"");
    }
    const bool x_has_gradient = context->saved_data["x_has_gradient"].toBool();
    const auto x = context->get_saved_variables()[0].detach().requires_grad_(x_has_gradient);
    at::Tensor y;
    {
      const at::AutoGradMode with_graph(true);
      y = call_again(*c10::static_intrusive_pointer_cast<ForwardState>(context->saved_data["state"].toCapsule()), x);
    }
    if (y.requires_grad()) torch::autograd::backward({y}, {gradients[0]});
    return {x_has_gradient ? x.grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute(const Part& function, const at::Tensor& x) {
  if (!at::GradMode::is_enabled()) return function(x);
  return RecomputeFunction::apply(x, at::empty({0}, x.options().dtype(at::kFloat)).requires_grad_(true), function);
}

}  // namespace trireme
