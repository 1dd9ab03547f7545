// One layer of a model, the unit that a pipeline distributes. It takes and returns a list of tensors.
//
// User-defined layers need nothing from this file: Model::add_layer() takes any torch::nn module, and any function.
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/tensor/tensors.h"

namespace trireme {

/// The first layer gets the batch's inputs, the last returns the outputs, such as logits. Integer tensors may also pass
/// between layers; only floating-point tensors have gradients.
class Layer : public torch::nn::Module {
 public:
  /// What is recomputed in the backward pass instead of being kept.
  enum class Again : uint8_t { kNothing, kAttention, kAll };

  virtual Tensors forward(const Tensors& x) = 0;
  /// Runs forward(x) as set_again() and set_random_number() ask; the bits are those of forward(x). A shared_ptr must
  /// own the layer.
  Tensors run(const Tensors& x);

  /// Whether the layer counts in the layer numbers of train.recompute. The output layer does not, since the backward
  /// pass needs its activations first; nor do embeddings, which keep almost nothing.
  virtual bool is_numbered() const { return true; }
  void set_again(Again again) { again_ = again; }
  /// Makes operators that draw random numbers use a stream of their own in each step and micro-batch (RandomScope),
  /// keyed by this number: [Note: Random operators]. Without a number they draw from libtorch's generator.
  void set_random_number(size_t number) { random_number_ = number; }

 protected:
  /// For layers with attention: returns part(x), recomputed in the backward pass if attention is to be.
  torch::Tensor run_attention(const torch::Tensor& x, const std::function<torch::Tensor(const torch::Tensor&)>& part);

 private:
  Tensors run_here(const Tensors& x);

  Again again_ = Again::kNothing;
  std::optional<size_t> random_number_;
};

/// A layer from one tensor to one tensor.
class TensorLayer : public Layer {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  Tensors forward(const Tensors& x) final;
};

/// Which tensors of the previous layer a module or a function gets.
enum class Takes : uint8_t {
  kAll,
  kFirst,  ///< only the first; the others are passed on after its outputs
};

namespace inside {

/// Calls `draw` so that libtorch's operators draw from a generator seeded by the current RandomScope and `number`; by
/// itself where there is no scope.
Tensors with_numbers_of(size_t number, torch::Device device, const std::function<Tensors()>& draw);

/// Throws UsageError: the layer does not take that many tensors.
[[noreturn]] void refuse_number(size_t num_tensors);

inline Tensors as_list(torch::Tensor y) { return {std::move(y)}; }
inline Tensors as_list(Tensors y) { return y; }

/// Calls the function with a list, or with one to four tensors, whichever it takes.
template <typename Function>
Tensors call(const Function& function, const Tensors& x) {
  using Tensor = torch::Tensor;
  constexpr bool one = std::invocable<const Function&, Tensor>, two = std::invocable<const Function&, Tensor, Tensor>;
  constexpr bool three = std::invocable<const Function&, Tensor, Tensor, Tensor>;
  constexpr bool four = std::invocable<const Function&, Tensor, Tensor, Tensor, Tensor>;
  constexpr bool list = std::invocable<const Function&, const Tensors&>;
  static_assert(one || two || three || four || list, "a layer takes one to four tensors, or a list of them");
  if constexpr (one) {
    if (x.size() == 1) return as_list(function(x[0]));
  }
  if constexpr (two) {
    if (x.size() == 2) return as_list(function(x[0], x[1]));
  }
  if constexpr (three) {
    if (x.size() == 3) return as_list(function(x[0], x[1], x[2]));
  }
  if constexpr (four) {
    if (x.size() == 4) return as_list(function(x[0], x[1], x[2], x[3]));
  }
  if constexpr (list) return as_list(function(x));
  refuse_number(x.size());
}

template <typename Function>
Tensors call(const Function& function, const Tensors& x, Takes takes) {
  if (takes == Takes::kAll || x.empty()) return call(function, x);
  Tensors y = call(function, Tensors{x[0]});
  y.insert(y.end(), x.begin() + 1, x.end());
  return y;
}

}  // namespace inside

template <typename Type>
concept PlainModule = std::derived_from<Type, torch::nn::Module> && !std::derived_from<Type, Layer>;
template <typename Type>
concept LayerFunction = std::invocable<const Type&, torch::Tensor> || std::invocable<const Type&, const Tensors&> ||
    std::invocable<const Type&, torch::Tensor, torch::Tensor> ||
    std::invocable<const Type&, torch::Tensor, torch::Tensor, torch::Tensor> ||
    std::invocable<const Type&, torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor>;

/// Wraps a module whose forward() takes tensors; the module is registered as its child.
template <typename Wrapped>
class ModuleLayer : public Layer {
 public:
  ModuleLayer(std::shared_ptr<Wrapped> module, Takes takes)
      : module_(register_module("module", std::move(module))), takes_(takes) {}
  Tensors forward(const Tensors& x) override {
    return inside::call(
        [this](auto&&... tensors) -> decltype(module_->forward(tensors...)) { return module_->forward(tensors...); }, x,
        takes_);
  }

 private:
  std::shared_ptr<Wrapped> module_;
  const Takes takes_;
};

/// A function without parameters.
template <typename Function>
class FunctionLayer : public Layer {
 public:
  FunctionLayer(Function function, Takes takes) : function_(std::move(function)), takes_(takes) {}
  Tensors forward(const Tensors& x) override { return inside::call(function_, x, takes_); }

 private:
  const Function function_;
  const Takes takes_;
};

}  // namespace trireme
