// What the language models have in common: their skeleton, and the output layer, which may use the embedding's weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/models/built_in.h"
#include "trireme/models/modules.h"

namespace trireme {

/// Norm, then logits. With tied weights its weight is a leaf tied to the embedding's memory (TiedUse); otherwise it has
/// its own Linear, `head`.
template <typename Norm>
class OutputLayer : public TensorLayer {
 public:
  OutputLayer(const ModelConfig& config, const torch::Tensor& token_weight)
      : norm_(register_module("norm", std::make_shared<Norm>(config.hidden, config.norm_eps))) {
    if (config.tied) {
      tied_weight_ = token_weight.detach().requires_grad_(true);
    } else {
      head_ = register_module("head", std::make_shared<Linear>(config.hidden, config.vocab, false));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) override { return ops::linear(norm_->forward(x), weight()); }
  bool is_numbered() const override { return false; }
  /// Equals the cross entropy of forward(x).
  torch::Tensor loss(const torch::Tensor& x, const torch::Tensor& target) const {
    return ops::linear_cross_entropy(norm_->forward(x), weight(), target);
  }
  /// Null if it has its own weight.
  torch::Tensor* tied_weight() { return head_ ? nullptr : &tied_weight_; }

 private:
  const torch::Tensor& weight() const { return head_ ? head_->weight : tied_weight_; }

  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> head_;
  torch::Tensor tied_weight_;
};

/// Embedding, blocks and output layer.
template <typename Norm>
class LanguageModel : public BuiltInModel {
 public:
  torch::Tensor forward_loss(Tensors x, const Tensors& targets, size_t first = 0) const override {
    const size_t last = layers().size() - 1;
    x = forward_layers(std::move(x), first, last);
    return run_layer(last, [&] { return output()->loss(x.at(0), targets.at(0)); });
  }
  std::vector<TiedUse> tied_uses() override {
    if (!output() || !output()->tied_weight()) return {};
    return {{"embedding.token.weight", output()->tied_weight(), layers().size() - 1}};
  }
  /// An embedding only looks up; attention also multiplies activations.
  std::vector<double> layer_costs() const override {
    std::vector<double> costs = Model::layer_costs();
    const auto hidden = static_cast<double>(config().hidden);
    costs.front() = 0;
    for (size_t i = 1; i + 1 < costs.size(); ++i) costs[i] += 2 * static_cast<double>(config().seq) * hidden;
    costs.back() = static_cast<double>(config().vocab) * hidden;
    return costs;
  }

 protected:
  /// `make_block(name)` makes each block; `embedding` must have a module `token`.
  template <typename Embedding, typename MakeBlock>
  LanguageModel(const ModelConfig& config, std::shared_ptr<Embedding> embedding, MakeBlock make_block)
      : BuiltInModel(config) {
    add_layer("embedding", embedding);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = "layers." + std::to_string(i);
      add_layer(name, make_block(name));
    }
    add_layer(std::make_shared<OutputLayer<Norm>>(config, embedding->token->weight));
  }

 private:
  /// Null if keep_layers() has dropped it.
  OutputLayer<Norm>* output() const { return static_cast<OutputLayer<Norm>*>(layers().back().get()); }
};

}  // namespace trireme
