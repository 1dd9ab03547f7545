// Llama (Touvron et al., 2023): RMS norms, rotary positions, SwiGLU, grouped-query attention, no biases.
#include <ATen/ops/arange.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/models/kinds.h"
#include "trireme/models/language.h"

namespace trireme {
namespace {

class LlamaEmbedding : public TensorLayer {
 public:
  explicit LlamaEmbedding(const ModelConfig& c)
      : token(register_module("token", std::make_shared<Embedding>(c.vocab, c.hidden))), seq_(c.seq) {}

  torch::Tensor forward(const torch::Tensor& tokens) override {
    const int64_t seq = tokens.size(1);
    if (seq > seq_) throw UsageError(fmt::format("{} tokens a sample, but the model knows {} positions", seq, seq_));
    return token->forward(tokens);
  }

  bool is_numbered() const override { return false; }

  std::shared_ptr<Embedding> token;

 private:
  int64_t seq_;
};

/// Cosines and sines of the angles, cached for the last device and dtype. Not buffers: they need not be saved.
class RotaryTable {
 public:
  RotaryTable(int64_t seq, int64_t head_dim, double theta) : seq_(seq), head_dim_(head_dim), theta_(theta) {}

  torch::Tensor rotate_by_position(const torch::Tensor& x) {
    if (!cosine_.defined() || cosine_.device() != x.device() || cosine_.scalar_type() != type_for(x)) make(x);
    const int64_t seq = x.size(1);
    return ops::rotate(x, cosine_.narrow(0, 0, seq), sine_.narrow(0, 0, seq));
  }

 private:
  /// Our GPU kernel takes angles in float32 whatever the dtype of x.
  static torch::ScalarType type_for(const torch::Tensor& x) { return x.is_cuda() ? torch::kFloat32 : x.scalar_type(); }

  void make(const torch::Tensor& like) {
    const auto frequency =
        at::pow(theta_, at::arange(0, head_dim_, 2, at::kFloat) / static_cast<double>(head_dim_)).reciprocal();
    const auto angle = at::outer(at::arange(seq_, at::kFloat), frequency).unsqueeze(1);
    cosine_ = angle.cos().to(like.options().dtype(type_for(like)));
    sine_ = angle.sin().to(like.options().dtype(type_for(like)));
  }

  int64_t seq_, head_dim_;
  double theta_;
  torch::Tensor cosine_, sine_;  // [seq, 1, head_dim / 2]
};

class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const ModelConfig& c)
      : heads_(c.heads),
        kv_heads_(c.kv_heads),
        rotary_(c.seq, c.hidden / c.heads, c.rope_theta),
        qkv_(register_module(
            "qkv", std::make_shared<Linear>(c.hidden, c.hidden / c.heads * (c.heads + 2 * c.kv_heads), false))),
        output_(register_module("output", std::make_shared<Linear>(c.hidden, c.hidden, false))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return output_->forward(ops::by_heads(
        qkv_->forward(x), heads_, kv_heads_,
        [this](const torch::Tensor& qkv, int64_t heads, int64_t kv_heads) { return attend(qkv, heads, kv_heads); }));
  }

 private:
  torch::Tensor attend(const torch::Tensor& qkv, int64_t heads, int64_t kv_heads) {
    const auto all = qkv.unflatten(-1, {heads + 2 * kv_heads, -1});
    // Queries and keys are rotated together, since they are adjacent.
    const auto parts = all.split_with_sizes({heads + kv_heads, kv_heads}, 2);
    const auto qk = rotary_.rotate_by_position(parts[0]).split_with_sizes({heads, kv_heads}, 2);
    return ops::causal_attention(qk[0], qk[1], parts[1]);
  }

  int64_t heads_, kv_heads_;
  RotaryTable rotary_;
  std::shared_ptr<Linear> qkv_, output_;
};

class LlamaFeedForward : public torch::nn::Module {
 public:
  explicit LlamaFeedForward(const ModelConfig& c)
      : gate_(register_module("gate", std::make_shared<Linear>(c.hidden, c.ffn, false))),
        up_(register_module("up", std::make_shared<Linear>(c.hidden, c.ffn, false))),
        down_(register_module("down", std::make_shared<Linear>(c.ffn, c.hidden, false))) {}
  torch::Tensor forward(const torch::Tensor& x) const {
    const auto both = ops::linears(x, {gate_->operands(), up_->operands()});
    return down_->forward(ops::swiglu(both[0], both[1]));
  }

 private:
  std::shared_ptr<Linear> gate_, up_, down_;
};

class LlamaBlock : public TensorLayer {
 public:
  explicit LlamaBlock(const ModelConfig& c)
      : attention_norm_(register_module("attention_norm", std::make_shared<RmsNorm>(c.hidden, c.norm_eps))),
        attention_(register_module("attention", std::make_shared<LlamaAttention>(c))),
        mlp_norm_(register_module("mlp_norm", std::make_shared<RmsNorm>(c.hidden, c.norm_eps))),
        mlp_(register_module("mlp", std::make_shared<LlamaFeedForward>(c))) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    const auto y = run_attention(
        x, [this](const torch::Tensor& z) { return z + attention_->forward(attention_norm_->forward(z)); });
    return y + mlp_->forward(mlp_norm_->forward(y));
  }

 private:
  std::shared_ptr<RmsNorm> attention_norm_;
  std::shared_ptr<LlamaAttention> attention_;
  std::shared_ptr<RmsNorm> mlp_norm_;
  std::shared_ptr<LlamaFeedForward> mlp_;
};

class Llama : public LanguageModel<RmsNorm> {
 public:
  explicit Llama(const ModelConfig& c)
      : LanguageModel(c, std::make_shared<LlamaEmbedding>(c),
                      [&](const std::string&) { return std::make_shared<LlamaBlock>(c); }) {}
};

}  // namespace

std::shared_ptr<BuiltInModel> make_llama(const ModelConfig& config) { return std::make_shared<Llama>(config); }

}  // namespace trireme
