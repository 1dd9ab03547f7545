// What the language models share: the output layer, whose weights may be the embedding's.
#pragma once

#include <memory>
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
  torch::Tensor forward(const torch::Tensor& x) override {
    return ops::linear(norm_->forward(x), head_ ? head_->weight : tied_weight_);
  }
  std::vector<SharedUse> shared_uses() {
    if (head_) return {};
    return {{"embedding.token.weight", &tied_weight_}};
  }

 private:
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> head_;
  torch::Tensor tied_weight_;
};

}  // namespace trireme
