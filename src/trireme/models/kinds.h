// Factories of the built-in models, for make_model(), which checks the configuration first and fills the parameters.
#pragma once

#include <memory>

#include "trireme/config/model_config.h"

namespace trireme {

class BuiltInModel;
std::shared_ptr<BuiltInModel> make_gpt2(const ModelConfig& config);
std::shared_ptr<BuiltInModel> make_llama(const ModelConfig& config);
std::shared_ptr<BuiltInModel> make_resnet(const ModelConfig& config);
std::shared_ptr<BuiltInModel> make_mlp(const ModelConfig& config);

}  // namespace trireme
