// A model as the trainer sees it: a sequence of layers, each any torch::nn module, with a loss.
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
// A pipeline is split between layers. There is no parallel code here. Owner: whoever made it. Threads: one at a time.
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
/// memory but is a separate leaf: its gradient is summed separately, so the order of the sum does not depend on which
/// rank or stage computes which use.
struct TiedUse {
  std::string parameter;  ///< name of the parameter that it is tied to
  torch::Tensor* use;     ///< the leaf, a member of a layer; the runtime points it to the parameter's memory
  size_t layer = 0;       ///< the layer that uses it
};

/// How well a model did on some samples. All are sums, so that parts of the held-out samples can be added up.
struct Score {
  double loss = 0;          ///< sum of losses
  double correct = 0;       ///< number of correct predictions; NaN if predictions are neither right nor wrong
  int64_t predictions = 0;  ///< number of predictions that count: `correct` is divided by it
  int64_t losses = -1;      ///< number of losses in the sum, by which it is divided; −1: as many as predictions
};

class Model : public torch::nn::Module {
 public:
  /// What the layers' modules are. `kTorch` modules may be anything: parameters start with the values they were built
  /// with, operators draw separate random numbers in each layer, and torch::nn's norms are followed. `kTrireme` modules
  /// are those of models/modules.h.
  enum class Modules : uint8_t { kTorch, kTrireme };

  /// Null for a layer that keep_layers() has dropped.
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  /// Runs all layers; returns the outputs, such as logits.
  Tensors forward(Tensors x) const { return forward_layers(std::move(x), 0, layers_.size()); }
  torch::Tensor forward(const torch::Tensor& x) const { return forward(Tensors{x}).at(0); }
  /// Runs layers first … last − 1.
  Tensors forward_layers(Tensors x, size_t first, size_t last) const;
  /// Called before a layer runs, and after it with its outputs; for the last layer these may be the loss.
  struct LayerHooks {
    std::function<void(size_t layer)> before;
    std::function<void(size_t layer, const Tensors& outputs)> after;
  };
  void set_layer_hooks(LayerHooks hooks) { hooks_ = std::move(hooks); }
  /// Runs the layers from `first` on and returns the loss, without materialising all logits where possible.
  virtual torch::Tensor forward_loss(Tensors x, const Tensors& targets, size_t first = 0) const;
  /// Mean over the micro-batch, a float32 scalar. By default cross entropy: [batch, …, classes] against int64 targets
  /// [batch, …]; targets of −100 are ignored. What it draws while training depends on seed, step and micro-batch alone.
  virtual torch::Tensor loss(const Tensors& outputs, const Tensors& targets) const;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& target) const {
    return loss(Tensors{output}, Tensors{target});
  }
  /// Sums over some held-out samples: 1 to train.micro_batch on a CPU, 1 on a GPU. By default loss() is taken as the
  /// mean over the elements of the first target except ignored ones, and a prediction is correct if the target's logit
  /// is the largest. Override it for a loss() that is another mean, such as one over samples whose numbers of targets
  /// differ.
  virtual Score score(const Tensors& outputs, const Tensors& targets) const;
  /// Second uses in layers that keep_layers() has not dropped.
  virtual std::vector<TiedUse> tied_uses() { return tied_uses_; }
  /// Running statistics of all norms that follow their inputs, in layer order: [Note: Running statistics].
  std::vector<Statistic> statistics() { return statistics(0, layers_.size()); }
  /// The same for layers first … last − 1.
  std::vector<Statistic> statistics(size_t first, size_t last);
  /// Initial values of a parameter that was built without values; by default from its name and shape
  /// (models/initial.h).
  virtual Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const;
  /// How parameters are sharded over a "tp" mesh axis of `ranks` ranks; parameters that no rule names are replicated.
  /// Throws UsageError if the model cannot be sharded that way.
  virtual LayoutRules tensor_parallel_rules(int ranks) const;

  /// Takes effect from the next forward pass. Changes memory and time, but no bit. Throws UsageError for layers that do
  /// not exist.
  void set_recompute(const Recompute& recompute);

  /// Approximate multiplications of each layer per token or per pixel, used to split the model into equal stages.
  virtual std::vector<double> layer_costs() const;
  /// Drops the other layers with their parameters and buffers. Second uses of a dropped parameter remain, with memory
  /// of their own.
  void keep_layers(const std::vector<bool>& kept);

  void train(bool on = true) override;
  Modules modules_of() const { return modules_of_; }

  // Initial values of parameters that were built with values. They are set aside when the runtime takes the parameters'
  // memory away, and dropped once it has assigned new memory.
  void set_built_values_aside();
  const std::map<std::string, torch::Tensor>& built_values() const { return built_values_; }
  void drop_built_values() { built_values_.clear(); }

 protected:
  explicit Model(Modules modules = Modules::kTorch) : modules_of_(modules) {}

  /// Names the layer's parameters name.…; a dot in the name makes a group ("layers.0"). Throws UsageError for a module
  /// whose parameters already belong to another layer: see tie().
  void add_layer(const std::string& name, std::shared_ptr<Layer> layer);
  /// Registers the layer's modules as if they were the model's own ("norm", "head"). The layer must have no other
  /// parameters, and does not receive train() and eval() itself: its modules do.
  void add_layer(std::shared_ptr<Layer> layer);
  /// Adds any module whose forward() takes and returns tensors, or lists of them. Returns the module.
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
  /// Adds a function of tensors, or of lists of them, without parameters.
  template <LayerFunction Function>
  void add_layer(const std::string& name, Function function, Takes takes = Takes::kAll) {
    add_layer(name, std::shared_ptr<Layer>(std::make_shared<FunctionLayer<Function>>(std::move(function), takes)));
  }
  /// Makes a parameter of the layer added last a second use of another layer's parameter. `use` is the member of the
  /// module that holds it, such as head->weight. Both must have the same shape.
  void tie(torch::Tensor& use, const std::string& parameter);

  template <typename Run>
  auto run_layer(size_t layer, Run run) const {
    if (hooks_.before) hooks_.before(layer);
    auto outputs = run();
    if (hooks_.after) hooks_.after(layer, inside::as_list(outputs));
    return outputs;
  }

 private:
  /// Where the modules of a layer are registered.
  struct Registered {
    torch::nn::Module* parent;
    std::vector<std::string> names;
  };
  /// A norm of torch::nn, with its layer.
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

/// Fills every parameter, in new memory, and second uses whose parameter keep_layers() has dropped. Call it for models
/// of Trireme's modules that no trainer has; make_model() has already done it.
void initialize(Model& model, uint64_t seed);
/// The initial values of one parameter; of a mesh tensor only this rank's part, and only that part is computed.
torch::Tensor initial_values(const Model& model, const std::string& name, const torch::Tensor& parameter,
                             uint64_t seed);

}  // namespace trireme
