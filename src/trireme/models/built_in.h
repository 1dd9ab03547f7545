// The built-in models, made from the section [model] of a configuration.
#pragma once

#include <memory>

#include "trireme/config/config.h"
#include "trireme/models/model.h"

namespace trireme {

/// A model of Trireme's modules that remembers its configuration.
class BuiltInModel : public Model {
 public:
  const ModelConfig& config() const { return config_; }
  LayoutRules tensor_parallel_rules(int ranks) const override;

 protected:
  explicit BuiltInModel(ModelConfig config) : Model(Modules::kTrireme), config_(std::move(config)) {}

 private:
  ModelConfig config_;
};

/// Builds the model that a configuration names, including one of a library; a model of Trireme's modules has no values
/// yet. Throws UsageError, naming the key, for a configuration that does not work (heads that do not divide hidden, …).
std::shared_ptr<Model> build_model(const ModelConfig& config, uint64_t seed = 1);
/// The same for a whole configuration.
inline std::shared_ptr<Model> build_model(const Config& config) {
  return build_model(config.model, static_cast<uint64_t>(config.train.seed));
}
/// The same with initial values, which depend only on (seed, parameter name, element).
std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed);

}  // namespace trireme
