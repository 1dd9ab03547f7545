#include "trireme/checkpoint/hugging_face_names.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Collects rules; the helpers say how a tensor of ours relates to theirs.
class Rules {
 public:
  void same(std::string ours, std::vector<int64_t> shape, std::string theirs) {
    const int64_t rows = shape[0];
    all_.push_back({std::move(ours), std::move(shape), {{std::move(theirs), rows}}, false});
  }
  void transposed(std::string ours, std::vector<int64_t> shape, std::string theirs) {
    same(std::move(ours), std::move(shape), std::move(theirs));
    all_.back().transposed = true;
  }
  void joined(std::string ours, std::vector<int64_t> shape, std::vector<NameRule::Part> theirs) {
    all_.push_back({std::move(ours), std::move(shape), std::move(theirs), false});
  }
  std::vector<NameRule> take() { return std::move(all_); }

 private:
  std::vector<NameRule> all_;
};

std::vector<NameRule> gpt2_rules(const ModelConfig& c) {
  Rules rules;
  const auto linear = [&](const std::string& ours, int64_t out, int64_t in, const std::string& theirs) {
    rules.transposed(ours + ".weight", {out, in}, theirs + ".weight");
    rules.same(ours + ".bias", {out}, theirs + ".bias");
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    rules.same(ours + ".weight", {c.hidden}, theirs + ".weight");
    rules.same(ours + ".bias", {c.hidden}, theirs + ".bias");
  };
  rules.same("embedding.token.weight", {c.vocab, c.hidden}, "transformer.wte.weight");
  rules.same("embedding.position.weight", {c.seq, c.hidden}, "transformer.wpe.weight");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("transformer.h.{}.", i);
    norm(ours + "attention_norm", theirs + "ln_1");
    linear(ours + "attention.qkv", 3 * c.hidden, c.hidden, theirs + "attn.c_attn");
    linear(ours + "attention.output", c.hidden, c.hidden, theirs + "attn.c_proj");
    norm(ours + "mlp_norm", theirs + "ln_2");
    linear(ours + "mlp.up", c.ffn, c.hidden, theirs + "mlp.c_fc");
    linear(ours + "mlp.down", c.hidden, c.ffn, theirs + "mlp.c_proj");
  }
  norm("norm", "transformer.ln_f");
  if (!c.tied) rules.same("head.weight", {c.vocab, c.hidden}, "lm_head.weight");
  return rules.take();
}

std::vector<NameRule> llama_rules(const ModelConfig& c) {
  Rules rules;
  const int64_t head_dim = c.hidden / c.heads, kv = head_dim * c.kv_heads;
  rules.same("embedding.token.weight", {c.vocab, c.hidden}, "model.embed_tokens.weight");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    const std::string attention = theirs + "self_attn.";
    rules.same(ours + "attention_norm.weight", {c.hidden}, theirs + "input_layernorm.weight");
    rules.joined(ours + "attention.qkv.weight", {c.hidden + 2 * kv, c.hidden},
                 {{attention + "q_proj.weight", c.hidden},
                  {attention + "k_proj.weight", kv},
                  {attention + "v_proj.weight", kv}});
    rules.same(ours + "attention.output.weight", {c.hidden, c.hidden}, attention + "o_proj.weight");
    rules.same(ours + "mlp_norm.weight", {c.hidden}, theirs + "post_attention_layernorm.weight");
    rules.same(ours + "mlp.gate.weight", {c.ffn, c.hidden}, theirs + "mlp.gate_proj.weight");
    rules.same(ours + "mlp.up.weight", {c.ffn, c.hidden}, theirs + "mlp.up_proj.weight");
    rules.same(ours + "mlp.down.weight", {c.hidden, c.ffn}, theirs + "mlp.down_proj.weight");
  }
  rules.same("norm.weight", {c.hidden}, "model.norm.weight");
  if (!c.tied) rules.same("head.weight", {c.vocab, c.hidden}, "lm_head.weight");
  return rules.take();
}

}  // namespace

std::vector<int64_t> NameRule::their_shape(const Part& part) const {
  std::vector<int64_t> theirs = shape;
  theirs[0] = part.rows;
  if (transposed) std::swap(theirs[0], theirs[1]);
  return theirs;
}

std::vector<NameRule> hugging_face_rules(const ModelConfig& config) {
  switch (config.kind) {
    case ModelKind::kGpt2:
      return gpt2_rules(config);
    case ModelKind::kLlama:
      return llama_rules(config);
    case ModelKind::kMlp:
    case ModelKind::kResNet:
    case ModelKind::kOwn:
      break;
  }
  throw UsageError(fmt::format("model.kind = {} has no counterpart in Hugging Face's files", config.name()),
                   "only gpt2 and llama can be imported and exported");
}

}  // namespace trireme
