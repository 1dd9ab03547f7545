// GPT-2 (Radford et al., 2019): learned positions, a norm before each half of a block, biases, GELU.
#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/models/dropout.h"
#include "trireme/models/kinds.h"
#include "trireme/models/language.h"

namespace trireme {
namespace {

class Gpt2Embedding : public TensorLayer {
 public:
  explicit Gpt2Embedding(const ModelConfig& c)
      : token(register_module("token", std::make_shared<Embedding>(c.vocab, c.hidden))),
        position_(register_module("position", std::make_shared<Embedding>(c.seq, c.hidden))),
        dropout_(register_module("dropout", std::make_shared<Dropout>(c.dropout, "embedding.dropout"))) {}

  torch::Tensor forward(const torch::Tensor& tokens) override {
    const int64_t seq = tokens.size(1), most = position_->weight.size(0);
    if (seq > most) throw UsageError(fmt::format("{} tokens a sample, but the model knows {} positions", seq, most));
    return dropout_->forward(ops::embedding(tokens, token->weight, position_->weight));
  }

  bool is_numbered() const override { return false; }

  std::shared_ptr<Embedding> token;

 private:
  std::shared_ptr<Embedding> position_;
  std::shared_ptr<Dropout> dropout_;
};

class Gpt2Attention : public torch::nn::Module {
 public:
  explicit Gpt2Attention(const ModelConfig& c)
      : heads(c.heads),
        qkv(register_module("qkv", std::make_shared<Linear>(c.hidden, 3 * c.hidden, true))),
        output(register_module("output", std::make_shared<Linear>(c.hidden, c.hidden, true))) {}

  torch::Tensor forward(const torch::Tensor& x) const {
    return output->forward(ops::causal_attention(qkv->forward(x), heads, heads));
  }

  const int64_t heads;
  const std::shared_ptr<Linear> qkv, output;
};

class Gpt2FeedForward : public torch::nn::Module {
 public:
  explicit Gpt2FeedForward(const ModelConfig& c)
      : up(register_module("up", std::make_shared<Linear>(c.hidden, c.ffn, true))),
        down(register_module("down", std::make_shared<Linear>(c.ffn, c.hidden, true))) {}
  torch::Tensor forward(const torch::Tensor& x) const { return down->forward(ops::gelu(up->forward(x))); }

  const std::shared_ptr<Linear> up, down;
};

class Gpt2Block : public TensorLayer {
 public:
  Gpt2Block(const ModelConfig& c, const std::string& name)
      : attention_norm_(register_module("attention_norm", std::make_shared<LayerNorm>(c.hidden, c.norm_eps))),
        attention_(register_module("attention", std::make_shared<Gpt2Attention>(c))),
        attention_dropout_(
            register_module("attention_dropout", std::make_shared<Dropout>(c.dropout, name + ".attention_dropout"))),
        mlp_norm_(register_module("mlp_norm", std::make_shared<LayerNorm>(c.hidden, c.norm_eps))),
        mlp_(register_module("mlp", std::make_shared<Gpt2FeedForward>(c))),
        mlp_dropout_(register_module("mlp_dropout", std::make_shared<Dropout>(c.dropout, name + ".mlp_dropout"))) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    const auto y = run_attention(x, [this](const torch::Tensor& z) { return attend(z); });
    if (!mlp_dropout_->is_active()) {
      return ops::mlp_block(y, mlp_norm_->operands(), mlp_->up->operands(), mlp_->down->operands());
    }
    return y + mlp_dropout_->forward(mlp_->forward(mlp_norm_->forward(y)));
  }

 private:
  torch::Tensor attend(const torch::Tensor& x) const {
    if (!attention_dropout_->is_active()) {
      return ops::attention_block(x, attention_norm_->operands(), attention_->qkv->operands(),
                                  attention_->output->operands(), attention_->heads);
    }
    return x + attention_dropout_->forward(attention_->forward(attention_norm_->forward(x)));
  }

  std::shared_ptr<LayerNorm> attention_norm_;
  std::shared_ptr<Gpt2Attention> attention_;
  std::shared_ptr<Dropout> attention_dropout_;
  std::shared_ptr<LayerNorm> mlp_norm_;
  std::shared_ptr<Gpt2FeedForward> mlp_;
  std::shared_ptr<Dropout> mlp_dropout_;
};

class Gpt2 : public LanguageModel<LayerNorm> {
 public:
  explicit Gpt2(const ModelConfig& c)
      : LanguageModel(c, std::make_shared<Gpt2Embedding>(c),
                      [&](const std::string& name) { return std::make_shared<Gpt2Block>(c, name); }) {}

  /// Layers that add to the residual stream start smaller, the deeper the model.
  Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const override {
    if (parameter.ends_with("attention.output.weight") || parameter.ends_with("mlp.down.weight")) {
      return Initial::normal(0.02 / std::sqrt(2.0 * static_cast<double>(config().layers)));
    }
    return Model::initial(parameter, shape);
  }
};

}  // namespace

std::shared_ptr<BuiltInModel> make_gpt2(const ModelConfig& config) { return std::make_shared<Gpt2>(config); }

}  // namespace trireme
