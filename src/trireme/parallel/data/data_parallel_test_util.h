// Small models, batches and a one-process reference for the tests of data parallelism.
#pragma once

#include <torch/torch.h>

#include <bit>
#include <cstdlib>
#include <functional>
#include <vector>

#include "trireme/comm/world.h"

namespace trireme {

inline void run_ranks(int num_ranks, const std::function<void(World&)>& body) {
  run_as_threads(num_ranks, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
}

inline torch::Tensor random_values(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn(shape, generator);
}

/// A layer used twice, one matrix under two names, one parameter that nothing uses, one frozen.
struct ToyModel : torch::nn::Module {
  explicit ToyModel(uint64_t seed, int64_t width = 16) {
    first = register_parameter("first", 0.2 * random_values({width, 8}, seed));
    tied = register_parameter("shared", 0.2 * random_values({width, width}, seed + 1));
    register_parameter("shared_again", tied);
    bias = register_parameter("bias", 0.2 * random_values({width}, seed + 2));
    unused = register_parameter("unused", random_values({5}, seed + 3));
    frozen = register_parameter("frozen", random_values({width}, seed + 4), false);
    last = register_parameter("last", 0.2 * random_values({3, width}, seed + 5));
    mean = register_buffer("mean", random_values({4}, seed + 6));
    count = register_buffer("count", torch::full({}, static_cast<int64_t>(seed), torch::kInt64));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(torch::matmul(x, first.t()));
    for (int i = 0; i < 2; ++i) y = torch::tanh(torch::addmm(bias + frozen, y, tied.t()));
    return torch::matmul(y, last.t());
  }
  torch::Tensor first, tied, bias, unused, frozen, last, mean, count;
};

/// The mean loss over `num_rows` samples made from a number.
inline torch::Tensor toy_loss(ToyModel& model, int batch, int64_t num_rows = 6) {
  const auto seed = static_cast<uint64_t>(1000 + 10 * batch);
  return torch::mse_loss(model.forward(random_values({num_rows, 8}, seed)), random_values({num_rows, 3}, seed + 1));
}

/// The parameters that are trained, each once.
inline std::vector<torch::Tensor> trained(const ToyModel& model) {
  return {model.first, model.tied, model.bias, model.unused, model.last};
}

/// [Note: Reduction order], evaluated as it is written.
inline torch::Tensor sum_along_tree(const std::vector<torch::Tensor>& values) {
  if (values.size() == 1) return values[0].clone();
  const auto split = values.begin() + static_cast<std::ptrdiff_t>(std::bit_floor(values.size() - 1));
  return sum_along_tree({values.begin(), split}) + sum_along_tree({split, values.end()});
}

/// The gradient of a loss for every parameter, zero where there is none.
inline std::vector<torch::Tensor> gradients_of(const torch::Tensor& loss,
                                               const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients = torch::autograd::grad({loss}, parameters, {}, false, false, true);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = torch::zeros_like(parameters[i]);
  }
  return gradients;
}

inline torch::optim::AdamW make_adamw(const ToyModel& model) {
  return torch::optim::AdamW(trained(model), torch::optim::AdamWOptions(0.05).weight_decay(0.1));
}

inline std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

/// Bit for bit.
inline bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = torch::equal(a[i], b[i]);
  return same;
}

inline double largest_difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

}  // namespace trireme
