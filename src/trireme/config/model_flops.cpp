#include "trireme/config/model_flops.h"

namespace trireme {

double model_flops(const ModelConfig& model, int64_t num_samples) {
  if (!model.is_language()) return 0;
  const auto hidden = static_cast<double>(model.hidden), ffn = static_cast<double>(model.ffn);
  const auto layers = static_cast<double>(model.layers), seq = static_cast<double>(model.seq);
  const bool is_llama = model.kind == ModelKind::kLlama;
  const double keys =
      is_llama ? hidden * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads) : hidden;
  const double attention_weights = 2 * hidden * hidden + 2 * hidden * keys;
  const double mlp_weights = (is_llama ? 3 : 2) * hidden * ffn;
  const double weights = layers * (attention_weights + mlp_weights) + hidden * static_cast<double>(model.vocab);
  const double tokens = static_cast<double>(num_samples) * seq;
  return tokens * (6 * weights + 12 * layers * seq * hidden);
}

}  // namespace trireme
