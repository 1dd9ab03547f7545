// What the language models share: their skeleton, and the output layer, whose weights may be the embedding's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/models/model.h"
#include "trireme/models/modules.h"

namespace trireme {

/// Norm, then logits. With tied weights it uses a leaf that shares the embedding's memory (SharedUse); otherwise it has
/// a Linear of its own, `head`.
template <typename Norm>
class OutputLayer : public Layer {
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
  /// The same as the cross entropy of forward(x).
  torch::Tensor loss(const torch::Tensor& x, const torch::Tensor& target) const {
    return ops::linear_cross_entropy(norm_->forward(x), weight(), target);
  }
  std::vector<SharedUse> shared_uses() {
    if (head_) return {};
    return {{"embedding.token.weight", &tied_weight_}};
  }

 private:
  const torch::Tensor& weight() const { return head_ ? head_->weight : tied_weight_; }

  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> head_;
  torch::Tensor tied_weight_;
};

/// Embedding, blocks and output layer.
template <typename Norm>
class LanguageModel : public Model {
 public:
  torch::Tensor forward_loss(torch::Tensor x, const torch::Tensor& target) const override {
    for (size_t i = 0; i + 1 < layers().size(); ++i) x = layers()[i]->run(x);
    return output_->loss(x, target);
  }
  std::vector<SharedUse> shared_uses() override { return output_->shared_uses(); }

 protected:
  /// `make_block(name)` gives each block; `embedding` has a module `token`.
  template <typename Embedding, typename MakeBlock>
  LanguageModel(const ModelConfig& config, std::shared_ptr<Embedding> embedding, MakeBlock make_block) : Model(config) {
    add_layer("embedding", embedding);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = "layers." + std::to_string(i);
      add_layer(name, make_block(name));
    }
    output_ = std::make_shared<OutputLayer<Norm>>(config, embedding->token->weight);
    add_layer(output_);
  }

 private:
  std::shared_ptr<OutputLayer<Norm>> output_;
};

}  // namespace trireme
