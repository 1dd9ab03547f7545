// The sizes of a model that trainer, simulator and planner need. A plain value.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/base/names.h"

namespace trireme {

/// `kOwn` is a model from a library.
enum class ModelKind : uint8_t { kMlp, kResNet, kGpt2, kLlama, kOwn };
constexpr auto names_of(ModelKind) {
  return std::to_array<std::string_view>({"mlp", "resnet", "gpt2", "llama", "own"});
}
/// Whether `name` is one of these, except "own".
bool is_built_in(std::string_view name);
/// Throws UsageError for any other name.
ModelKind model_kind(std::string_view name);

/// Fields that a kind does not use keep their defaults.
struct ModelShape {
  ModelKind kind = ModelKind::kGpt2;

  // gpt2, llama, and (layers, hidden) mlp
  int64_t layers = 4;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t kv_heads = 4;  ///< llama: grouped-query attention if fewer than heads
  int64_t ffn = 512;     ///< width inside the feed-forward part
  int64_t seq = 128;     ///< tokens per sample, and the number of positions that the model knows
  int64_t vocab = 256;
  bool tied = true;  ///< the output layer uses the embedding's weights

  // resnet, mlp
  int64_t depth = 18;  ///< resnet: 18, 34, 50, 101
  int64_t channels = 1;
  int64_t image = 28;  ///< pixels per side
  int64_t classes = 10;

  // known only to the simulator
  int64_t experts = 1, active_experts = 1;  ///< feed-forward experts per block, and how many of them each token uses

  bool is_own() const { return kind == ModelKind::kOwn; }
  bool is_language() const { return kind == ModelKind::kGpt2 || kind == ModelKind::kLlama; }
  /// resnet: whether the first convolution is 3 x 3 and keeps the size, instead of 7 x 7, which shrinks the image.
  bool has_small_image() const { return image <= 64; }
  /// Number of heads of keys and values.
  int64_t key_heads() const { return kind == ModelKind::kLlama ? kv_heads : heads; }
  bool operator==(const ModelShape&) const = default;
};

/// Layers between which a built-in model can be split: embedding or stem, blocks, output.
int num_layers(const ModelShape& model);

/// The one list of sizes that have a key: calls `visit(name, value, is_used)` for each; is_used: the kind uses it.
template <typename Shape, typename Visit>
void visit_sizes(Shape& m, Visit visit) {
  const bool text = m.is_language(), mlp = m.kind == ModelKind::kMlp, images = mlp || m.kind == ModelKind::kResNet;
  visit("layers", m.layers, text || mlp);
  visit("hidden", m.hidden, text || mlp);
  visit("heads", m.heads, text);
  visit("kv_heads", m.kv_heads, m.kind == ModelKind::kLlama);
  visit("ffn", m.ffn, text);
  visit("seq", m.seq, text);
  visit("vocab", m.vocab, text);
  visit("tied", m.tied, text);
  visit("depth", m.depth, images && !mlp);
  visit("channels", m.channels, images);
  visit("image", m.image, images);
  visit("classes", m.classes, images);
}

}  // namespace trireme
