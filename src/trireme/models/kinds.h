// The kinds of models, for make_model(): it has checked the configuration, and gives the parameters their values.
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
