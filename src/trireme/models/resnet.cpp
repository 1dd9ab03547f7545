// ResNet (He et al., 2016) of 18, 34, 50 or 101 layers, with torchvision's names and shapes.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/built_in.h"
#include "trireme/models/kinds.h"
#include "trireme/models/modules.h"

namespace trireme {
namespace {

constexpr int64_t kSmallImage = 64;  // up to this size the stem does not shrink the image

/// Number of blocks in each of the four groups, and their kind.
struct Shape {
  std::array<int64_t, 4> blocks;
  bool bottleneck;
};

Shape shape_of(int64_t depth) {
  switch (depth) {
    case 18:
      return {{2, 2, 2, 2}, false};
    case 34:
      return {{3, 4, 6, 3}, false};
    case 50:
      return {{3, 4, 6, 3}, true};
    case 101:
      return {{3, 4, 23, 3}, true};
    default:
      throw UsageError(fmt::format("model.depth = {} is no ResNet", depth), "give 18, 34, 50 or 101");
  }
}

class Conv2d : public torch::nn::Module {
 public:
  Conv2d(int64_t in, int64_t out, int64_t size, int64_t stride)
      : weight_(register_parameter("weight", unset({out, in, size, size}))), stride_(stride) {}
  torch::Tensor forward(const torch::Tensor& x) const {
    const int64_t padding = weight_.size(-1) / 2;
    return at::conv2d(x, weight_, {}, {stride_, stride_}, at::IntArrayRef{padding, padding});
  }

 private:
  torch::Tensor weight_;
  int64_t stride_;
};

/// Convolution and norm of a shortcut whose shape changes; named 0 and 1 as in torchvision.
class Downsample : public torch::nn::Module {
 public:
  Downsample(int64_t in, int64_t out, int64_t stride, bool sync)
      : conv_(register_module("0", std::make_shared<Conv2d>(in, out, 1, stride))),
        norm_(register_module("1", std::make_shared<BatchNorm>(out, sync))) {}
  torch::Tensor forward(const torch::Tensor& x) const { return norm_->forward(conv_->forward(x)); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm> norm_;
};

/// Two 3×3 convolutions; as a bottleneck, 1×1, 3×3 and 1×1 to four times the width.
class ResidualBlock : public TensorLayer {
 public:
  ResidualBlock(int64_t in, int64_t width, int64_t stride, bool bottleneck, bool sync) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      add(in, width, 1, 1, sync);
      add(width, width, 3, stride, sync);
      add(width, out, 1, 1, sync);
    } else {
      add(in, width, 3, stride, sync);
      add(width, out, 3, 1, sync);
    }
    if (stride != 1 || in != out) {
      downsample_ = register_module("downsample", std::make_shared<Downsample>(in, out, stride, sync));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    auto y = x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      y = norms_[i]->forward(convs_[i]->forward(i == 0 ? y : at::relu(y)));
    }
    return at::relu(y + (downsample_ ? downsample_->forward(x) : x));
  }

 private:
  void add(int64_t in, int64_t out, int64_t size, int64_t stride, bool sync) {
    const size_t number = convs_.size() + 1;
    convs_.push_back(register_module(fmt::format("conv{}", number), std::make_shared<Conv2d>(in, out, size, stride)));
    norms_.push_back(register_module(fmt::format("bn{}", number), std::make_shared<BatchNorm>(out, sync)));
  }

  std::vector<std::shared_ptr<Conv2d>> convs_;
  std::vector<std::shared_ptr<BatchNorm>> norms_;
  std::shared_ptr<Downsample> downsample_;
};

class Stem : public TensorLayer {
 public:
  explicit Stem(const ModelConfig& c)
      : small_(c.image <= kSmallImage),
        conv_(register_module("conv1", std::make_shared<Conv2d>(c.channels, 64, small_ ? 3 : 7, small_ ? 1 : 2))),
        norm_(register_module("bn1", std::make_shared<BatchNorm>(64, c.sync_statistics))) {}
  torch::Tensor forward(const torch::Tensor& x) override {
    const auto y = at::relu(norm_->forward(conv_->forward(x)));
    return small_ ? y : at::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
  }

 private:
  bool small_;
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm> norm_;
};

class ResnetClasses : public TensorLayer {
 public:
  ResnetClasses(int64_t in, int64_t classes)
      : fc_(register_module("fc", std::make_shared<Linear>(in, classes, true))) {}
  torch::Tensor forward(const torch::Tensor& x) override { return fc_->forward(x.mean({2, 3})); }
  bool is_numbered() const override { return false; }

 private:
  std::shared_ptr<Linear> fc_;
};

class ResNet : public BuiltInModel {
 public:
  explicit ResNet(const ModelConfig& c) : BuiltInModel(c) {
    const Shape shape = shape_of(c.depth);
    add_layer(std::make_shared<Stem>(c));
    int64_t channels = 64;
    for (int64_t group = 0; group < 4; ++group) {
      const int64_t width = 64 << group;
      for (int64_t i = 0; i < shape.blocks[static_cast<size_t>(group)]; ++i) {
        const int64_t stride = group > 0 && i == 0 ? 2 : 1;
        add_layer(fmt::format("layer{}.{}", group + 1, i),
                  std::make_shared<ResidualBlock>(channels, width, stride, shape.bottleneck, c.sync_statistics));
        channels = shape.bottleneck ? 4 * width : width;
      }
    }
    add_layer(std::make_shared<ResnetClasses>(channels, c.classes));
  }

  /// Each group has a quarter of the pixels of the previous one.
  std::vector<double> layer_costs() const override {
    std::vector<double> costs = Model::layer_costs();
    size_t at = 1;
    double fraction = 1;
    for (const int64_t blocks : shape_of(config().depth).blocks) {
      for (int64_t i = 0; i < blocks; ++i) costs[at++] *= fraction;
      fraction /= 4;
    }
    costs.back() = 0;
    return costs;
  }

  Initial initial(const std::string& parameter, const std::vector<int64_t>& shape) const override {
    if (parameter == "fc.weight") return Initial::uniform(1 / std::sqrt(static_cast<double>(shape[1])));
    return Model::initial(parameter, shape);
  }
};

}  // namespace

std::shared_ptr<BuiltInModel> make_resnet(const ModelConfig& config) { return std::make_shared<ResNet>(config); }

}  // namespace trireme
