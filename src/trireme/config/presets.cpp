#include "trireme/config/presets.h"

#include <fmt/format.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

// The default of `trireme train`: about a million parameters, a minute or two on two cores.
constexpr std::string_view kDefault = R"(
[model]
kind = "gpt2"
layers = 4
hidden = 128
heads = 4
seq = 64
vocab = 256

[train]
steps = 600
global_batch = 32
micro_batch = 4
target_loss = 0.75
clip = 1.0
eval_every = 100

[optimizer]
kind = "adamw"
lr = 3e-3
beta2 = 0.95
weight_decay = 0.1
schedule = "cosine"
warmup_steps = 60
min_lr = 0.1
)";

constexpr std::string_view kGpt2Bench = R"(
[model]
kind = "gpt2"
layers = 4
hidden = 256
heads = 8
seq = 128
vocab = 512

[train]
steps = 20
global_batch = 16
micro_batch = 8

[optimizer]
kind = "adamw"
lr = 3e-4
)";

// Small sizes for a laptop: they learn, but their numbers come from no paper.
constexpr std::string_view kGpt2Tiny = R"(
[model]
kind = "gpt2"
layers = 2
hidden = 64
heads = 2
seq = 64
vocab = 256

[train]
steps = 200
clip = 1.0
)";

constexpr std::string_view kLlamaTiny = R"(
[model]
kind = "llama"
layers = 2
hidden = 64
heads = 4
kv_heads = 2
ffn = 192
seq = 64
vocab = 256

[train]
steps = 200
clip = 1.0
)";

// Settings that all sizes of GPT-2 have in common, with usual training settings.
std::string gpt2(int layers, int hidden, int heads) {
  return fmt::format(R"(
[model]
kind = "gpt2"
layers = {}
hidden = {}
heads = {}
seq = 1024
vocab = 50257

[train]
global_batch = 512
micro_batch = 4
clip = 1.0

[optimizer]
kind = "adamw"
lr = 6e-4
beta2 = 0.95
weight_decay = 0.1
schedule = "cosine"
warmup_steps = 100
min_lr = 0.1
)",
                     layers, hidden, heads);
}

std::string llama(int layers, int hidden, int heads, int kv_heads, int ffn, int seq, int vocab, int theta) {
  return fmt::format(R"(
[model]
kind = "llama"
layers = {}
hidden = {}
heads = {}
kv_heads = {}
ffn = {}
seq = {}
vocab = {}
rope_theta = {}
tied = false

[train]
global_batch = 512
micro_batch = 1
clip = 1.0

[optimizer]
kind = "adamw"
lr = 3e-4
beta2 = 0.95
weight_decay = 0.1
schedule = "cosine"
warmup_steps = 100
min_lr = 0.1
)",
                     layers, hidden, heads, kv_heads, ffn, seq, vocab, theta);
}

std::string resnet(int depth) {
  return fmt::format(R"(
[model]
kind = "resnet"
depth = {}
channels = 3
image = 224
classes = 1000

[train]
global_batch = 256
micro_batch = 32

[optimizer]
kind = "sgd"
lr = 0.1
momentum = 0.9
weight_decay = 1e-4
schedule = "cosine"
warmup_steps = 100
)",
                     depth);
}

constexpr std::string_view kMlp = R"(
[model]
kind = "mlp"
layers = 2
hidden = 128
channels = 1
image = 28
classes = 10

[train]
steps = 200
global_batch = 64
micro_batch = 32

[optimizer]
kind = "sgd"
lr = 0.1
momentum = 0.9
weight_decay = 0.0
)";

std::vector<Preset> make_presets() {
  return {
      {"default", "about a million parameters on generated text: what runs when nothing is asked for",
       std::string(kDefault)},
      {"gpt2-tiny", "two layers on bytes, for tests and first steps", std::string(kGpt2Tiny)},
      {"gpt2-bench", "the job that `trireme bench train` times", std::string(kGpt2Bench)},
      {"gpt2-124m", "GPT-2 small", gpt2(12, 768, 12)},
      {"gpt2-355m", "GPT-2 medium", gpt2(24, 1024, 16)},
      {"gpt2-774m", "GPT-2 large", gpt2(36, 1280, 20)},
      {"gpt2-1.5b", "GPT-2 XL", gpt2(48, 1600, 25)},
      {"llama-tiny", "two layers on bytes with grouped-query attention, for tests", std::string(kLlamaTiny)},
      {"llama-7b", "Llama 2 7B", llama(32, 4096, 32, 32, 11008, 4096, 32000, 10000)},
      {"llama-8b", "Llama 3 8B", llama(32, 4096, 32, 8, 14336, 8192, 128256, 500000)},
      {"llama-70b", "Llama 3 70B", llama(80, 8192, 64, 8, 28672, 8192, 128256, 500000)},
      {"resnet18", "ResNet-18 for ImageNet", resnet(18)},
      {"resnet50", "ResNet-50 for ImageNet", resnet(50)},
      {"mlp", "two hidden layers on images of 28 x 28 pixels", std::string(kMlp)},
  };
}

}  // namespace

const std::vector<Preset>& list_presets() {
  static const std::vector<Preset> presets = make_presets();
  return presets;
}

const Preset& find_preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Preset& preset : list_presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  const std::string shown = printable(name);
  const auto meant = nearest(shown, names);
  throw UsageError(fmt::format("there is no preset \"{}\"", shown),
                   meant ? fmt::format("did you mean {}?", *meant) : "there are " + join(names, ", "));
}

}  // namespace trireme
