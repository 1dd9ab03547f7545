// A model as the trainer sees it: layers in sequence, each any torch::nn module, with a loss.
//
//   class Twin : public trireme::Model {
//    public:
//     Twin() {
//       add_layer("first", torch::nn::Linear(8, 32));
//       add_layer("relu", [](const torch::Tensor& x) { return torch::relu(x); });
//       add_layer("last", torch::nn::Linear(32, 4));
//     }
//   };
//
// A pipeline cuts between layers. There is no parallel code here. Owner: whoever made it. Threads: one at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/recompute.h"
#include "trireme/models/initial.h"
#include "trireme/models/layer.h"
#include "trireme/models/statistics.h"
#include "trireme/parallel/tensor/layout_rules.h"

namespace trireme {

/// A second use of a parameter, such as the embedding's weights in the output layer. It is tied to the parameter's
/// memory, but is a leaf of its own: its gradient is summed apart, so that the sum's order does not depend on which
/// rank or stage computes which use.
struct TiedUse {
  std::string parameter;  ///< name of the parameter that it is tied to
  torch::Tensor* use;     ///< the leaf, a member of a layer; the runtime points it to the parameter's memory
  size_t layer = 0;       ///< which uses it
};

/// How well a micro-batch did.
struct Score {
  double loss = 0;          ///< the sum over all predictions
  double correct = 0;       ///< of the predictions; not a number where there is no right or wrong
  int64_t predictions = 0;  ///< that the loss is the mean of
};

class Model : public torch::nn::Module {
 public:
  /// Whose modules the layers are made of. `kTorch` may be anything: parameters begin as they were built, operators
  /// draw random numbers for each layer, norms of torch::nn are followed. `kTrireme` are those of models/modules.h.
  enum class Modules : uint8_t { kTorch, kTrireme };

  /// Null where keep_layers() has dropped one.
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  /// All layers, one after another: outputs, such as logits.
  Tensors forward(Tensors x) const { return forward_layers(std::move(x), 0, layers_.size()); }
  torch::Tensor forward(const torch::Tensor& x) const { return forward(Tensors{x}).at(0); }
  /// Layers first … last − 1.
  Tensors forward_layers(Tensors x, size_t first, size_t last) const;
  /// Called before a layer is computed, and with its outputs: of the last, perhaps the loss.
  struct LayerHooks {
    std::function<void(size_t layer)> before;
    std::function<void(size_t layer, const Tensors& outputs)> after;
  };
  void set_layer_hooks(LayerHooks hooks) { hooks_ = std::move(hooks); }
  /// The loss of what the layers from `first` on make of x, without holding all logits where that can be had.
  virtual torch::Tensor forward_loss(Tensors x, const Tensors& targets, size_t first = 0) const {
    return loss(forward_layers(std::move(x), first, layers_.size()), targets);
  }
  /// Mean over the micro-batch; a float32 number. Cross entropy: [batch, …, classes] against [batch, …] of int64, of
  /// which −100 does not count.
  virtual torch::Tensor loss(const Tensors& outputs, const Tensors& targets) const;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& target) const {
    return loss(Tensors{output}, Tensors{target});
  }
  /// Sums over some held-out samples; on a GPU it is given one at a time. By default of loss(), over as many
  /// predictions as the first target has numbers that count; they are right where the largest logit is the target's.
  virtual Score score(const Tensors& outputs, const Tensors& targets) const;
  /// Of layers that keep_layers() has not dropped.
  virtual std::vector<TiedUse> tied_uses() { return tied_uses_; }
  /// Those of every norm inside that follows its inputs, in the order of the layers: [Note: Running statistics].
  std::vector<Statistic> statistics() { return statistics(0, layers_.size()); }
  /// Of layers first … last − 1.
  std::vector<Statistic> statistics(size_t first, size_t last);
  /// How a parameter begins that was not built with values; by default what its name and shape suggest
  /// (models/initial.h).
  virtual Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const;
  /// How parameters lie along the mesh axis "tp" of so many ranks; those that no rule names, whole on each. Throws
  /// UsageError where the model cannot be cut so.
  virtual LayoutRules tensor_parallel_rules(int ranks) const;

  /// From the next forward on. Changes memory and time, no bit. Throws UsageError for layers that are not there.
  void set_recompute(const Recompute& recompute);

  /// Roughly the multiplications of each layer for a token or an image's pixel: to cut the model into equal parts.
  virtual std::vector<double> layer_costs() const;
  /// Forgets the other layers, with their parameters and buffers. Uses of a parameter that is gone stay, with memory of
  /// their own.
  void keep_layers(const std::vector<bool>& kept);

  void train(bool on = true) override;
  Modules modules_of() const { return modules_of_; }

  // Parameters that were built with values begin with these: they are set aside when the runtime takes the memory of
  // parameters away, and dropped when it has given them another.
  void set_built_values_aside();
  const std::map<std::string, torch::Tensor>& built_values() const { return built_values_; }
  void drop_built_values() { built_values_.clear(); }

 protected:
  explicit Model(Modules modules = Modules::kTorch) : modules_of_(modules) {}

  /// The layer's parameters are called name.… ; a dot in the name makes a group ("layers.0"). Throws UsageError for a
  /// module whose parameters are in another layer already: see tie().
  void add_layer(const std::string& name, std::shared_ptr<Layer> layer);
  /// The layer's modules are called as if they were the model's own ("norm", "head"). It has no parameters beside
  /// theirs, and does not itself learn of train() and eval(): they do.
  void add_layer(std::shared_ptr<Layer> layer);
  /// Any module whose forward() takes and gives tensors, or lists of them. Returns it.
  template <PlainModule Module>
  std::shared_ptr<Module> add_layer(const std::string& name, std::shared_ptr<Module> module,
                                    Takes takes = Takes::kAll) {
    add_module(name, module, std::make_shared<ModuleLayer<Module>>(module, takes));
    return module;
  }
  template <typename Module>
  std::shared_ptr<Module> add_layer(const std::string& name, const torch::nn::ModuleHolder<Module>& holder,
                                    Takes takes = Takes::kAll) {
    return add_layer(name, holder.ptr(), takes);
  }
  /// A function of tensors, or lists of them, without parameters.
  template <LayerFunction Function>
  void add_layer(const std::string& name, Function function, Takes takes = Takes::kAll) {
    add_layer(name, std::shared_ptr<Layer>(std::make_shared<FunctionLayer<Function>>(std::move(function), takes)));
  }
  /// A parameter of the layer that was added last becomes a second use of another layer's: `use` is the member of the
  /// module that has it, such as head->weight. Both have one shape.
  void tie(torch::Tensor& use, const std::string& parameter);

  template <typename Run>
  auto run_layer(size_t layer, Run run) const {
    if (hooks_.before) hooks_.before(layer);
    auto outputs = run();
    if (hooks_.after) hooks_.after(layer, inside::as_list(outputs));
    return outputs;
  }

 private:
  /// Where a layer's modules are registered.
  struct Registered {
    torch::nn::Module* parent;
    std::vector<std::string> names;
  };
  /// A norm of torch::nn, by its layer.
  struct Followed {
    size_t layer;
    const torch::nn::Module* module;
    std::shared_ptr<FollowedNorm> norm;
  };
  std::pair<torch::nn::Module*, std::string> place_of(const std::string& name);
  void add_module(const std::string& name, std::shared_ptr<torch::nn::Module> module, std::shared_ptr<Layer> layer);
  void append(std::shared_ptr<Layer> layer, Registered registered);

  const Modules modules_of_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<Registered> registered_;
  std::vector<TiedUse> tied_uses_;
  std::vector<Followed> followed_;
  std::map<std::string, torch::Tensor> built_values_;
  LayerHooks hooks_;
};

/// Gives every parameter its initial value, in new memory, and uses of parameters that keep_layers() has dropped. For
/// models of trireme's modules that no trainer has; make_model() has done it.
void initialize(Model& model, uint64_t seed);
/// What one parameter begins with: of a mesh tensor this rank's part, which is all that is ever made of it.
torch::Tensor initial_values(const Model& model, const std::string& name, const torch::Tensor& parameter,
                             uint64_t seed);

}  // namespace trireme
