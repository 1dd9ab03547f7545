#include "trireme/parallel/pipeline/layer_costs.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "trireme/parallel/data/broadcast.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/held_memory.h"

namespace trireme {
namespace {

constexpr int kRepeats = 4;  // the first one allocates memory and chooses kernels

struct Passes {
  double seconds = std::numeric_limits<double>::infinity();
  int64_t kept_bytes = 0;
  torch::Tensor output;
};

Passes measure(torch::nn::AnyModule& layer, const torch::Tensor& input, const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> wanted;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) wanted.push_back(parameter);
  }
  if (input.requires_grad()) wanted.push_back(input);
  Passes passes;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::optional<HeldMemory> memory;
    if (input.is_cpu()) memory.emplace();
    synchronize(input.device());
    const auto start = std::chrono::steady_clock::now();
    const torch::Tensor output = layer.forward<torch::Tensor>(input);
    if (memory) passes.kept_bytes = std::max<int64_t>(0, memory->now_bytes());
    if (output.requires_grad()) {
      torch::autograd::grad({output}, wanted, {torch::ones_like(output)}, false, false, /*allow_unused=*/true);
    }
    synchronize(input.device());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    passes.seconds = std::min(passes.seconds, taken.count());
    passes.output = output.detach();
  }
  return passes;
}

}  // namespace

LayerCosts measure_layers(Communicator& comm, torch::nn::Sequential model, const torch::Tensor& example) {
  return measure_layers(comm, std::vector<torch::nn::AnyModule>(model->begin(), model->end()), example);
}

LayerCosts measure_layers(Communicator& comm, std::vector<torch::nn::AnyModule> layers, const torch::Tensor& example) {
  const auto count = static_cast<int64_t>(layers.size());
  torch::Tensor measured = torch::zeros({3, count}, torch::kFloat64);
  torch::Tensor x = example;
  for (int64_t i = 0; comm.rank() == 0 && i < count; ++i) {
    torch::nn::AnyModule& layer = layers[static_cast<size_t>(i)];
    const std::vector<torch::Tensor> parameters = layer.ptr()->parameters(), buffers = layer.ptr()->buffers();
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& buffer : buffers) before.push_back(buffer.detach().clone());
    x = x.detach();
    if (i > 0 && x.is_floating_point()) x.requires_grad_();  // the first stage's input needs no gradient
    const Passes passes = measure(layer, x, parameters);
    const torch::NoGradGuard no_grad;
    for (size_t b = 0; b < buffers.size(); ++b) buffers[b].copy_(before[b]);
    double bytes = 0;
    for (const torch::Tensor& parameter : parameters) {
      bytes += static_cast<double>(parameter.nbytes()) * (parameter.requires_grad() ? 2 : 1);
    }
    measured[0][i] = passes.seconds;
    measured[1][i] = bytes;
    measured[2][i] = static_cast<double>(passes.kept_bytes);
    x = passes.output;
  }
  broadcast(comm, measured);
  LayerCosts costs;
  for (int64_t i = 0; i < count; ++i) {
    costs.seconds.push_back(measured[0][i].item<double>());
    costs.bytes.push_back(static_cast<uint64_t>(measured[1][i].item<double>()));
    costs.activation_bytes.push_back(static_cast<uint64_t>(measured[2][i].item<double>()));
  }
  return costs;
}

}  // namespace trireme
