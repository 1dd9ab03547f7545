// The model: section [model] of a configuration, resolved. A plain value, without libtorch.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <string>

#include "trireme/config/model_library.h"
#include "trireme/shape/model_shape.h"

namespace trireme {

/// Fields that a kind does not use keep their defaults.
struct ModelConfig : ModelShape {
  double dropout = 0;  ///< gpt2, mlp: fraction of values
  double norm_eps = 1e-5;
  double rope_theta = 10000;     ///< llama: base of the rotary positions
  bool sync_statistics = false;  ///< resnet: BatchNorm over all replicas instead of each micro-batch

  // For a model of a library.
  std::string library = {};   ///< path of the library; empty: none
  std::string own_kind = {};  ///< the model's name in the library; see model.kind
  SampleKind own_samples = SampleKind::kOwn;
  std::map<std::string, Value> own_values = {};  ///< values of [model.NAME] for all its models: "unet.width"

  bool takes_tokens() const { return is_own() ? own_samples == SampleKind::kTokens : is_language(); }
  /// The value of model.kind: a built-in kind or a name of the library, such as "gpt2", "unet".
  std::string name() const { return is_own() ? own_kind : std::string(name_of(kind)); }
  bool operator==(const ModelConfig&) const = default;
};

/// The types of keys.
template <typename Type>
concept KeyType = std::same_as<Type, int64_t> || std::same_as<Type, double> || std::same_as<Type, bool> ||
    std::same_as<Type, std::string>;

/// A value of [model.NAME] for this model. Throws UsageError if it has no such key, or one of another type.
template <KeyType Type>
const Type& own_value(const ModelConfig& model, const std::string& key);

/// Number of trainable parameters: a tied output layer counts once, running statistics do not count. Exact, equal to
/// Hugging Face's and torchvision's models of the same shapes. Throws UsageError for a library's model, which has to be
/// built to be counted.
int64_t count_parameters(const ModelConfig& model);

}  // namespace trireme
