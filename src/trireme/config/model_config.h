// What a model is: the section [model] of a configuration, resolved. A plain value without libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/config/model_library.h"
#include "trireme/shape/model_shape.h"

namespace trireme {

/// Fields that a kind does not use keep their defaults.
struct ModelConfig : ModelShape {
  double dropout = 0;  ///< gpt2, mlp
  double norm_eps = 1e-5;
  double rope_theta = 10000;     ///< llama
  bool sync_statistics = false;  ///< resnet: BatchNorm over all replicas instead of each micro-batch

  // a model of a library
  std::string library = {};   ///< its file; empty: kind is built in
  std::string own_kind = {};  ///< the model's name there
  SampleKind own_samples = SampleKind::kOwn;
  std::map<std::string, Value> own_values = {};  ///< of [model.NAME], for all models of the library: "unet.width"

  bool takes_tokens() const { return is_own() ? own_samples == SampleKind::kTokens : is_language(); }
  /// Of kind, or of the library: "gpt2", "unet".
  std::string name() const { return is_own() ? own_kind : std::string(name_of(kind)); }
  bool operator==(const ModelConfig&) const = default;
};

/// A value of [model.NAME]. Throws UsageError where the model has no such key, or one of another type.
template <typename Type>
const Type& own_value(const ModelConfig& model, const std::string& key);

/// Trainable numbers; a tied output layer counts once, running statistics do not. Exact for every kind, as
/// Hugging Face's and torchvision's models of the same shapes have them. Throws UsageError for a library's model, which
/// has to be built to be counted.
int64_t count_parameters(const ModelConfig& model);

}  // namespace trireme
