// A U-Net that learns to find discs among noise, for `trireme train`: skips, BatchNorm, dropout, samples of its own.
// Nothing in it is parallel, yet it trains over any layout: docs/own_model.md.
#include <trireme/torch.h>

#include <cmath>
#include <random>

namespace {

using trireme::Takes, trireme::Tensors;

/// Two convolutions, of which tensor parallelism cuts the first by outputs and the second by inputs.
struct Block : torch::nn::Module {
  Block(int64_t in, int64_t out) {
    const auto convolution = [](int64_t from, int64_t to) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false));
    };
    first = register_module("first", convolution(in, out));
    second = register_module("second", convolution(out, out));
    norm = register_module("norm", torch::nn::BatchNorm2d(out));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(norm(second(torch::relu(first(x))))); }

  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};

/// Gives what it has found twice: halved for the next level, and as it is for the way back up.
struct Down : torch::nn::Module {
  Down(int64_t in, int64_t out) : block(register_module("block", std::make_shared<Block>(in, out))) {}
  Tensors forward(Tensors x) {  // the picture, then the skips of the levels above
    const torch::Tensor found = block->forward(x[0]);
    x[0] = torch::max_pool2d(found, 2);
    x.insert(x.begin() + 1, found);
    return x;
  }
  std::shared_ptr<Block> block;
};

struct Up : torch::nn::Module {
  Up(int64_t in, int64_t skip, int64_t out)
      : block(register_module("block", std::make_shared<Block>(in + skip, out))) {}
  Tensors forward(Tensors x) {
    const torch::Tensor larger = x[0].repeat_interleave(2, 2).repeat_interleave(2, 3);
    x[0] = block->forward(torch::cat({larger, x[1]}, 1));
    x.erase(x.begin() + 1);
    return x;
  }
  std::shared_ptr<Block> block;
};

struct UNet : trireme::Model {
  explicit UNet(const trireme::ModelConfig& model) {
    const int64_t width = trireme::own_value<int64_t>(model, "width");
    add_layer("down1", std::make_shared<Down>(1, width));
    add_layer("down2", std::make_shared<Down>(width, 2 * width));
    add_layer("middle", std::make_shared<Block>(2 * width, 4 * width), Takes::kFirst);  // skips pass by
    add_layer("dropout", torch::nn::Dropout(trireme::own_value<double>(model, "dropout")), Takes::kFirst);
    add_layer("up2", std::make_shared<Up>(4 * width, 2 * width, 2 * width));
    add_layer("up1", std::make_shared<Up>(2 * width, width, width));
    add_layer("head", torch::nn::Conv2d(width, 2, 1));
    add_layer("classes_last", [](const torch::Tensor& x) { return x.permute({0, 2, 3, 1}); });
  }
  trireme::LayoutRules tensor_parallel_rules(int) const override {
    return {{".*first\\.weight", {{"tp", trireme::Placement::shard(0)}}},
            {".*second\\.weight", {{"tp", trireme::Placement::shard(1)}}}};
  }
};

/// Discs in noise, and which pixels are theirs; made anew at each read.
class Discs : public trireme::Dataset {
 public:
  static constexpr int64_t kSide = 16;
  Discs(uint64_t seed, int64_t count) : seed_(seed), count_(count) {}
  int64_t size() const override { return count_; }
  trireme::SampleShape shape() const override {
    using trireme::Field;
    return {{{Field::Type::kFloat, {1, kSide, kSide}}}, {{Field::Type::kInt64, {kSide, kSide}}}};
  }

 protected:
  void read_sample(int64_t index, const trireme::SampleSlot& slot) const override {
    std::mt19937_64 random(seed_ * 1'000'003 + static_cast<uint64_t>(index));
    const auto draw = [&](double least, double most) {
      return least + (most - least) * std::ldexp(static_cast<double>(random() >> 11), -53);
    };
    const double x0 = draw(4, 12), y0 = draw(4, 12), radius = draw(2, 4);
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const double x = static_cast<double>(i % kSide), y = static_cast<double>(i / kSide);
      const bool inside = std::hypot(x - x0, y - y0) < radius;
      const double noise = draw(-1, 1);
      if (const auto picture = slot.input<float>(); !picture.empty())
        picture[static_cast<size_t>(i)] = static_cast<float>(noise + (inside ? 1 : 0));
      if (const auto mask = slot.target<int64_t>(); !mask.empty()) mask[static_cast<size_t>(i)] = inside ? 1 : 0;
    }
  }

 private:
  const uint64_t seed_;
  const int64_t count_;
};

trireme::OpenedData open_discs(const trireme::Config& config) {
  const auto seed = static_cast<uint64_t>(config.train.seed);
  const int64_t count = trireme::own_value<int64_t>(config.model, "pictures");
  return {.train = std::make_shared<Discs>(seed, count),
          .held_out = std::make_shared<Discs>(seed + 1, count / 8 + 1),
          .description = std::to_string(count) + " pictures of discs"};
}

}  // namespace

TRIREME_MODEL_LIBRARY(library) {
  library.add(
      "unet", "A U-Net of two levels that finds discs in noise.",
      {{"width", 8, "channels of the first level", 1, 512},
       {"dropout", 0.1, "share of values dropped in the middle", 0, 0.9},
       {"pictures", 2048, "pictures to train on", 1, 1e9}},
      [](const trireme::ModelConfig& model) { return std::make_shared<UNet>(model); }, open_discs);
}
