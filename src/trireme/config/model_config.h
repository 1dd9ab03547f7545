// What a model is: the section [model] of a configuration, resolved. A plain value without libtorch, so that planner,
// simulator and trainer read the same one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class ModelKind { kMlp, kResNet, kGpt2, kLlama };
std::string_view name_of(ModelKind kind);  // "mlp", "resnet", "gpt2", "llama"
/// Throws UsageError for a name that is none of these.
ModelKind model_kind(std::string_view name);

/// Fields that a kind does not use keep their defaults.
struct ModelConfig {
  ModelKind kind = ModelKind::kGpt2;

  // gpt2, llama, and (layers, hidden) mlp
  int64_t layers = 4;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t kv_heads = 4;  ///< llama: grouped-query attention where fewer than heads
  int64_t ffn = 512;     ///< width inside the feed-forward part
  int64_t seq = 128;     ///< tokens of a sample, and the most positions that the model knows
  int64_t vocab = 256;
  bool tied = true;    ///< the output layer uses the embedding's weights
  double dropout = 0;  ///< gpt2, mlp
  double norm_eps = 1e-5;
  double rope_theta = 10000;  ///< llama

  // resnet, mlp
  int64_t depth = 18;  ///< resnet: 18, 34, 50, 101
  int64_t channels = 1;
  int64_t image = 28;  ///< pixels a side
  int64_t classes = 10;
  bool sync_statistics = false;  ///< BatchNorm over all replicas instead of each micro-batch

  /// resnet: a first convolution of 3 x 3 that keeps the size, instead of 7 x 7 that shrinks the image.
  bool has_small_image() const { return image <= 64; }
  bool is_language() const { return kind == ModelKind::kGpt2 || kind == ModelKind::kLlama; }
  bool operator==(const ModelConfig&) const = default;
};

/// Trainable numbers; a tied output layer counts once, running statistics do not. Exact for every kind, as
/// Hugging Face's and torchvision's models of the same shapes have them.
int64_t count_parameters(const ModelConfig& model);

}  // namespace trireme
