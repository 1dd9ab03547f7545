// A small configuration of each kind of model, and an input for it, for the tests of this folder.
#pragma once

#include <torch/types.h>

#include "trireme/config/model_config.h"

namespace trireme {

inline ModelConfig small_config(ModelKind kind) {
  ModelConfig c;
  c.kind = kind;
  c.layers = 2;
  c.hidden = 24;
  c.heads = 4;
  c.kv_heads = kind == ModelKind::kLlama ? 2 : 4;
  c.ffn = 40;
  c.seq = 10;
  c.vocab = 31;
  c.channels = 3;
  c.image = 8;
  c.classes = 5;
  return c;
}

inline torch::Tensor small_input(const ModelConfig& c, int64_t samples) {
  if (c.is_language()) return torch::randint(c.vocab, {samples, c.seq}, torch::kInt64);
  return torch::randn({samples, c.channels, c.image, c.image});
}

inline torch::Tensor small_target(const ModelConfig& c, int64_t samples) {
  if (c.is_language()) return torch::randint(c.vocab, {samples, c.seq}, torch::kInt64);
  return torch::randint(c.classes, {samples}, torch::kInt64);
}

}  // namespace trireme
