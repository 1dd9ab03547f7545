// The models of the project, made from the section [model] of a configuration.
#pragma once

#include <memory>

#include "trireme/config/config.h"
#include "trireme/models/model.h"

namespace trireme {

/// Made of trireme's modules, from a configuration that it remembers.
class BuiltInModel : public Model {
 public:
  const ModelConfig& config() const { return config_; }
  LayoutRules tensor_parallel_rules(int ranks) const override;

 protected:
  explicit BuiltInModel(ModelConfig config) : Model(Modules::kTrireme), config_(std::move(config)) {}

 private:
  ModelConfig config_;
};

/// The model that a configuration names, one of a library included, without values where it is made of trireme's
/// modules. Throws UsageError for a configuration that cannot be (heads that do not divide hidden, …), naming the key.
std::shared_ptr<Model> build_model(const ModelConfig& config, uint64_t seed = 1);
/// The one that a whole configuration names.
inline std::shared_ptr<Model> build_model(const Config& config) {
  return build_model(config.model, static_cast<uint64_t>(config.train.seed));
}
/// The same with its initial values: a function of (seed, parameter name, element) alone.
std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed);

}  // namespace trireme
