// A model as the trainer sees it: layers in sequence, each a plain torch::nn module that maps one tensor to the next.
//
// A pipeline cuts between layers. There is no parallel code here. Owner: whoever made it. Threads: one at a time.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/model_config.h"
#include "trireme/config/recompute.h"
#include "trireme/models/initial.h"

namespace trireme {

/// One step of the sequence. The first gets the batch's input, the last gives the output (logits).
class Layer : public torch::nn::Module {
 public:
  /// What of its inside is computed again in the backward pass instead of being kept.
  enum class Again : uint8_t { kNothing, kAttention, kAll };

  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  /// forward(x), with what set_again() asked for. The bits are those of forward(x). A shared_ptr must own the layer.
  torch::Tensor run(const torch::Tensor& x);

  /// Whether the layer counts where layers are numbered for train.recompute. Not: the output, whose inside the backward
  /// needs first, and embeddings, which keep next to nothing.
  virtual bool is_numbered() const { return true; }
  void set_again(Again again) { again_ = again; }

 protected:
  /// For layers with attention: part(x), computed again where the attention shall be.
  torch::Tensor run_attention(const torch::Tensor& x, const std::function<torch::Tensor(const torch::Tensor&)>& part);

 private:
  Again again_ = Again::kNothing;
};

/// A second use of a parameter, such as the embedding's weights in the output layer. It shares the parameter's memory,
/// but is a leaf of its own: its gradient is summed apart, so that the sum's order does not depend on which rank or
/// stage computes which use.
struct SharedUse {
  std::string parameter;  ///< name of the parameter whose memory it shares
  torch::Tensor* use;     ///< the leaf, a member of a layer; the runtime points it to the parameter's memory anew
  size_t layer = 0;       ///< which uses it
};

/// Sums over the samples of a micro-batch that become buffers after the step, such as BatchNorm's running statistics.
/// They are averaged over micro-batches in the order of gradients, then running = running + momentum (mean − running).
struct Statistic {
  std::string buffer;  ///< name of the running buffer
  torch::Tensor running;
  torch::Tensor* observed;  ///< what the last forward in training mode saw; same shape as `running`
  double momentum = 0.1;
};

class Model : public torch::nn::Module {
 public:
  /// Null where keep_layers() has dropped one.
  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }
  /// All layers, one after another: logits.
  torch::Tensor forward(torch::Tensor x) const { return forward_layers(std::move(x), 0, layers_.size()); }
  /// Layers first … last − 1.
  torch::Tensor forward_layers(torch::Tensor x, size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i) x = run_layer(i, [&] { return layers_[i]->run(x); });
    return x;
  }
  /// Called before a layer is computed, and with its output: of the last, perhaps the loss.
  struct LayerHooks {
    std::function<void(size_t layer)> before;
    std::function<void(size_t layer, const torch::Tensor& output)> after;
  };
  void set_layer_hooks(LayerHooks hooks) { hooks_ = std::move(hooks); }
  /// The loss of what the layers from `first` on make of x, without holding all logits where that can be had.
  virtual torch::Tensor forward_loss(torch::Tensor x, const torch::Tensor& target, size_t first = 0) const {
    return loss(forward_layers(std::move(x), first, layers_.size()), target);
  }
  /// Mean over the micro-batch, from logits; float32. Cross entropy: [batch, …, classes] against [batch, …] of int64.
  virtual torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& target) const;
  virtual std::vector<SharedUse> shared_uses() { return {}; }
  /// Those of every BatchNorm inside, in the order of the layers.
  std::vector<Statistic> statistics() { return statistics(0, layers_.size()); }
  /// Of layers first … last − 1.
  std::vector<Statistic> statistics(size_t first, size_t last);
  /// How a parameter begins; by default what its name and shape suggest (models/initial.h).
  virtual Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const;

  /// From the next forward on. Changes memory and time, no bit. Throws UsageError for layers that are not there.
  void set_recompute(const Recompute& recompute);

  /// Roughly the multiplications of each layer for a token or an image's pixel: to cut the model into equal parts.
  virtual std::vector<double> layer_costs() const;
  /// Forgets the other layers, with their parameters and buffers. Uses of a parameter that is gone stay, with memory of
  /// their own.
  void keep_layers(const std::vector<bool>& kept);

  const ModelConfig& config() const { return config_; }

 protected:
  template <typename Run>
  torch::Tensor run_layer(size_t layer, Run run) const {
    if (hooks_.before) hooks_.before(layer);
    torch::Tensor output = run();
    if (hooks_.after) hooks_.after(layer, output);
    return output;
  }
  explicit Model(ModelConfig config) : config_(std::move(config)) {}
  /// The layer's parameters are called name.… ; a dot in the name makes a group ("layers.0").
  void add_layer(const std::string& name, std::shared_ptr<Layer> layer);
  /// The layer's modules are called as if they were the model's own ("norm", "head"). It has no parameters beside
  /// theirs, and does not itself learn of train() and eval(): they do.
  void add_layer(std::shared_ptr<Layer> layer);

 private:
  /// Where a layer's modules are registered.
  struct Registered {
    torch::nn::Module* parent;
    std::vector<std::string> names;
  };
  ModelConfig config_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<Registered> registered_;
  LayerHooks hooks_;
};

/// Builds the model; initial weights are a function of (seed, parameter name, element) alone. Throws UsageError for a
/// configuration that cannot be (heads that do not divide hidden, …), naming the key.
std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed);
/// The same without values, and without memory for them.
std::shared_ptr<Model> build_model(const ModelConfig& config);

/// Gives every parameter its initial value, in new memory, and uses of parameters that keep_layers() has dropped. For
/// models of one's own, and after build_model(); make_model() has done it.
void initialize(Model& model, uint64_t seed);
/// What one parameter begins with: of a mesh tensor this rank's part, which is all that is ever made of it.
torch::Tensor initial_values(const Model& model, const std::string& name, const torch::Tensor& parameter,
                             uint64_t seed);

/// How many predictions (the largest logit) are right.
int64_t count_correct(const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace trireme
