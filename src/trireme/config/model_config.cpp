#include "trireme/config/model_config.h"

#include <fmt/format.h>

#include <array>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Parameters of a fully connected layer: weights and biases.
int64_t linear(int64_t in, int64_t out) { return in * out + out; }

int64_t count_gpt2(const ModelConfig& m) {
  const int64_t norm = 2 * m.hidden;
  const int64_t attention = linear(m.hidden, 3 * m.hidden) + linear(m.hidden, m.hidden);
  const int64_t feed_forward = linear(m.hidden, m.ffn) + linear(m.ffn, m.hidden);
  const int64_t embeddings = (m.vocab + m.seq) * m.hidden;
  const int64_t output = m.tied ? 0 : m.vocab * m.hidden;
  return embeddings + m.layers * (attention + feed_forward + 2 * norm) + norm + output;
}

int64_t count_llama(const ModelConfig& m) {
  const int64_t kv_width = m.heads > 0 ? m.hidden / m.heads * m.kv_heads : 0;
  const int64_t attention = 2 * m.hidden * m.hidden + 2 * m.hidden * kv_width;
  const int64_t feed_forward = 3 * m.hidden * m.ffn;
  const int64_t embeddings = m.vocab * m.hidden * (m.tied ? 1 : 2);
  return embeddings + m.layers * (attention + feed_forward + 2 * m.hidden) + m.hidden;
}

/// Parameters of a convolution without bias and its BatchNorm.
int64_t convolution(int64_t in, int64_t out, int64_t side) { return in * out * side * side + 2 * out; }

int64_t count_resnet(const ModelConfig& m) {
  const bool bottleneck = m.depth >= 50;
  const std::array<int64_t, 4> blocks = m.depth == 18    ? std::array<int64_t, 4>{2, 2, 2, 2}
                                        : m.depth == 101 ? std::array<int64_t, 4>{3, 4, 23, 3}
                                                         : std::array<int64_t, 4>{3, 4, 6, 3};
  int64_t total = convolution(m.channels, 64, m.has_small_image() ? 3 : 7), in = 64;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = int64_t{64} << stage, out = bottleneck ? 4 * width : width;
    for (int64_t block = 0; block < blocks[stage]; ++block) {
      total += bottleneck ? convolution(in, width, 1) + convolution(width, width, 3) + convolution(width, out, 1)
                          : convolution(in, width, 3) + convolution(width, out, 3);
      // A block that changes the number of channels, the first of a stage, has a convolution as its shortcut.
      if (block == 0 && in != out) total += convolution(in, out, 1);
      in = out;
    }
  }
  return total + linear(in, m.classes);
}

int64_t count_mlp(const ModelConfig& m) {
  return linear(m.channels * m.image * m.image, m.hidden) + (m.layers - 1) * linear(m.hidden, m.hidden) +
         linear(m.hidden, m.classes);
}

}  // namespace

template <KeyType Type>
const Type& own_value(const ModelConfig& model, const std::string& key) {
  const auto found = model.own_values.find(model.own_kind + "." + key);
  if (found == model.own_values.end()) {
    throw UsageError(fmt::format("the model {} has no key {}", model.own_kind, key),
                     "list it among the keys that the library gives");
  }
  if (const auto* value = std::get_if<Type>(&found->second)) return *value;
  throw UsageError(fmt::format("model.{}.{} is of another type", model.own_kind, key),
                   "its default says of which type it is: 8 is a whole number, 8.0 a number");
}
template const int64_t& own_value(const ModelConfig& model, const std::string& key);
template const double& own_value(const ModelConfig& model, const std::string& key);
template const bool& own_value(const ModelConfig& model, const std::string& key);
template const std::string& own_value(const ModelConfig& model, const std::string& key);

int64_t count_parameters(const ModelConfig& model) {
  switch (model.kind) {
    case ModelKind::kMlp:
      return count_mlp(model);
    case ModelKind::kResNet:
      return count_resnet(model);
    case ModelKind::kGpt2:
      return count_gpt2(model);
    case ModelKind::kLlama:
      return count_llama(model);
    case ModelKind::kOwn:
      break;
  }
  throw UsageError(fmt::format("model.kind = {}: what a library gives is counted where it is built", model.name()),
                   "trireme train says how many parameters it has");
}

}  // namespace trireme
