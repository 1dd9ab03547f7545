// A multi-layer perceptron over the pixels of an image.
#include <ATen/ops/relu.h>
#include <fmt/format.h>

#include <cmath>

#include "trireme/models/built_in.h"
#include "trireme/models/dropout.h"
#include "trireme/models/kinds.h"
#include "trireme/models/modules.h"

namespace trireme {
namespace {

class HiddenLayer : public TensorLayer {
 public:
  HiddenLayer(int64_t in, const ModelConfig& c, const std::string& name)
      : linear_(register_module("linear", std::make_shared<Linear>(in, c.hidden, true))),
        dropout_(register_module("dropout", std::make_shared<Dropout>(c.dropout, name + ".dropout"))) {}
  /// Flattens images; flat inputs are unchanged.
  torch::Tensor forward(const torch::Tensor& x) override {
    return dropout_->forward(at::relu(linear_->forward(x.flatten(1))));
  }

 private:
  std::shared_ptr<Linear> linear_;
  std::shared_ptr<Dropout> dropout_;
};

class MlpClasses : public TensorLayer {
 public:
  explicit MlpClasses(const ModelConfig& c)
      : head_(register_module("head", std::make_shared<Linear>(c.hidden, c.classes, true))) {}
  torch::Tensor forward(const torch::Tensor& x) override { return head_->forward(x); }
  bool is_numbered() const override { return false; }

 private:
  std::shared_ptr<Linear> head_;
};

class Mlp : public BuiltInModel {
 public:
  explicit Mlp(const ModelConfig& c) : BuiltInModel(c) {
    for (int64_t i = 0; i < c.layers; ++i) {
      const std::string name = fmt::format("layers.{}", i);
      add_layer(name, std::make_shared<HiddenLayer>(i == 0 ? c.channels * c.image * c.image : c.hidden, c, name));
    }
    add_layer(std::make_shared<MlpClasses>(c));
  }

  /// Uniform: He et al. (2015) for layers before a ReLU, a sixth of that variance for the classes.
  Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const override {
    if (shape.size() != 2) return Model::initial(parameter, shape);
    return Initial::uniform(std::sqrt((parameter == "head.weight" ? 1.0 : 6.0) / static_cast<double>(shape[1])));
  }
};

}  // namespace

std::shared_ptr<BuiltInModel> make_mlp(const ModelConfig& config) { return std::make_shared<Mlp>(config); }

}  // namespace trireme
