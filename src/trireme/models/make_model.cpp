// Chooses the model by its kind, after checking its configuration.
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/models/built_in.h"
#include "trireme/models/kinds.h"
#include "trireme/models/model_library.h"
#include "trireme/parallel/tensor/recipes.h"

namespace trireme {
namespace {

struct Key {
  const char* name;
  int64_t value;
};

void demand_positive(std::initializer_list<Key> keys) {
  for (const auto& [name, value] : keys) {
    if (value < 1) throw UsageError(fmt::format("model.{} = {} must be at least 1", name, value));
  }
}

void demand_divides(const Key& divisor, const Key& number) {
  if (number.value % divisor.value == 0) return;
  throw UsageError(fmt::format("model.{} = {} does not divide model.{} = {}", divisor.name, divisor.value, number.name,
                               number.value));
}

void check_language(const ModelConfig& c) {
  demand_positive({{"layers", c.layers},
                   {"hidden", c.hidden},
                   {"heads", c.heads},
                   {"ffn", c.ffn},
                   {"seq", c.seq},
                   {"vocab", c.vocab}});
  demand_divides({"heads", c.heads}, {"hidden", c.hidden});
}

}  // namespace

LayoutRules BuiltInModel::tensor_parallel_rules(int ranks) const {
  return trireme::tensor_parallel_rules(config_, ranks);
}

std::shared_ptr<Model> build_model(const ModelConfig& c, uint64_t seed) {
  switch (c.kind) {
    case ModelKind::kGpt2:
      check_language(c);
      return make_gpt2(c);
    case ModelKind::kLlama:
      check_language(c);
      demand_positive({{"kv_heads", c.kv_heads}});
      demand_divides({"kv_heads", c.kv_heads}, {"heads", c.heads});
      if (c.hidden / c.heads % 2 != 0) {
        throw UsageError(fmt::format("model.hidden / model.heads = {} is odd: rotary positions turn pairs of dims",
                                     c.hidden / c.heads));
      }
      return make_llama(c);
    case ModelKind::kResNet:
      demand_positive({{"channels", c.channels}, {"image", c.image}, {"classes", c.classes}});
      return make_resnet(c);
    case ModelKind::kMlp:
      demand_positive({{"layers", c.layers},
                       {"hidden", c.hidden},
                       {"channels", c.channels},
                       {"image", c.image},
                       {"classes", c.classes}});
      return make_mlp(c);
    case ModelKind::kOwn:
      return build_own_model(c, seed);
  }
  throw UsageError(fmt::format("model.kind = {} is unknown", static_cast<int>(c.kind)));
}

std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed) {
  auto model = build_model(config, seed);
  initialize(*model, seed);
  return model;
}

}  // namespace trireme
