#include "trireme/parallel/tensor/recipes.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/check.h"

namespace trireme {
namespace {

LayoutRule cut(std::string name, const Placement& placement) { return {std::move(name), {{"tp", placement}}}; }

/// Queries, keys and values as three equal parts, each sharded by heads.
Placement packed_heads() { return Placement::shard(0, 3); }

/// Queries, then fewer keys, then values, each sharded by heads.
Placement grouped_heads(const ModelConfig& model) {
  Placement placement = Placement::shard(0);
  placement.ratio = {static_cast<int16_t>(model.heads / model.kv_heads), 1, 1};
  return placement;
}

LayoutRules vocabulary(const ModelConfig& model) {
  LayoutRules rules = {cut("embedding\\.token\\.weight", Placement::shard(0))};
  if (!model.tied) rules.push_back(cut("head\\.weight", Placement::shard(0)));
  return rules;
}

LayoutRules gpt2(const ModelConfig& model) {
  LayoutRules rules = vocabulary(model);
  rules.push_back(cut("layers\\.\\d+\\.attention\\.qkv\\.(weight|bias)", packed_heads()));
  rules.push_back(cut("layers\\.\\d+\\.attention\\.output\\.weight", Placement::shard(1)));
  rules.push_back(cut("layers\\.\\d+\\.mlp\\.up\\.(weight|bias)", Placement::shard(0)));
  rules.push_back(cut("layers\\.\\d+\\.mlp\\.down\\.weight", Placement::shard(1)));
  return rules;
}

LayoutRules llama(const ModelConfig& model, int ranks) {
  LayoutRules rules = vocabulary(model);
  // With fewer key heads than ranks, qkv is computed whole on each rank, and attention shards the result by query
  // heads.
  if (model.kv_heads % ranks == 0) {
    rules.push_back(cut("layers\\.\\d+\\.attention\\.qkv\\.weight", grouped_heads(model)));
  }
  rules.push_back(cut("layers\\.\\d+\\.attention\\.output\\.weight", Placement::shard(1)));
  rules.push_back(cut("layers\\.\\d+\\.mlp\\.(gate|up)\\.weight", Placement::shard(0)));
  rules.push_back(cut("layers\\.\\d+\\.mlp\\.down\\.weight", Placement::shard(1)));
  return rules;
}

/// Sharded by outputs, by inputs, by outputs, …
LayoutRules mlp(const ModelConfig& model) {
  LayoutRules rules;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string name = fmt::format("layers\\.{}\\.linear\\.", layer);
    rules.push_back(layer % 2 == 0 ? cut(name + "(weight|bias)", Placement::shard(0))
                                   : cut(name + "weight", Placement::shard(1)));
  }
  if (model.layers % 2 == 1) rules.push_back(cut("head\\.weight", Placement::shard(1)));
  return rules;
}

/// Shards the last two convolutions of each block.
LayoutRules resnet(const ModelConfig& model) {
  const int first = model.depth >= 50 ? 2 : 1;
  return {cut(fmt::format("layer\\d+\\.\\d+\\.conv{}\\.weight", first), Placement::shard(0)),
          cut(fmt::format("layer\\d+\\.\\d+\\.bn{}\\.(weight|bias)", first), Placement::shard(0)),
          cut(fmt::format("layer\\d+\\.\\d+\\.conv{}\\.weight", first + 1), Placement::shard(1))};
}

}  // namespace

LayoutRules tensor_parallel_rules(const ModelConfig& model, int ranks) {
  check_tensor_parallel(model, ranks);
  switch (model.kind) {
    case ModelKind::kGpt2:
      return gpt2(model);
    case ModelKind::kLlama:
      return llama(model, ranks);
    case ModelKind::kMlp:
      return mlp(model);
    case ModelKind::kResNet:
      return resnet(model);
    case ModelKind::kOwn:  // it has rules of its own
      break;
  }
  throw Error("unknown kind of model");
}

}  // namespace trireme
