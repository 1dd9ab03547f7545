// A model of many small layers, and the one-process training that a pipeline must equal bit for bit.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/parallel/pipeline/pipeline.h"

namespace trireme {

constexpr int64_t kWidth = 6;

/// x + tanh of one layer, used twice: an input with several uses, a weight with several uses.
struct ResidualImpl : torch::nn::Module {
  ResidualImpl() {
    register_module("linear", linear);
    unused = register_parameter("unused", torch::randn({3}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + torch::tanh(linear(torch::tanh(linear(x)))) * x; }
  torch::nn::Linear linear{kWidth, kWidth};
  torch::Tensor unused;
};
TORCH_MODULE(Residual);

inline torch::nn::Sequential small_model() {
  torch::manual_seed(11);
  using namespace torch::nn;
  return Sequential(Linear(4, kWidth), ReLU(), Residual(), LayerNorm(LayerNormOptions({kWidth})),
                    Linear(kWidth, kWidth), GELU(), Residual(), Linear(kWidth, kWidth), Sigmoid(), Residual(),
                    LayerNorm(LayerNormOptions({kWidth})), Linear(kWidth, 3));
}

struct Batch {
  torch::Tensor input, target;
};

/// Of all replicas together.
inline Batch batch_of(int step, int64_t num_samples) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + step));
  return {torch::randn({num_samples, 4}, generator), torch::randn({num_samples, 3}, generator)};
}

inline torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

struct Weights {
  std::map<std::string, torch::Tensor> values;
  std::vector<double> losses;
};

/// [Note: Leaves], as it is written.
inline torch::Tensor sum_leaves(const std::vector<torch::Tensor>& leaves) {
  if (leaves.size() == 1) return leaves[0].clone();
  const auto split = leaves.begin() + static_cast<std::ptrdiff_t>(std::bit_floor(leaves.size() - 1));
  return sum_leaves({leaves.begin(), split}) + sum_leaves({split, leaves.end()});
}

template <typename Parameters>
torch::optim::AdamW optimizer_of(const Parameters& parameters) {
  return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

/// `micro_batches` of the whole step, in `leaves`.
inline Weights train_alone(torch::nn::Sequential model, int micro_batches, int leaves, int steps, int64_t samples = 2) {
  at::set_num_threads(1);
  const auto parameters = model->parameters();
  auto optimizer = optimizer_of(parameters);
  Weights result;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = batch_of(step, samples * micro_batches);
    std::vector<std::vector<torch::Tensor>> sums(parameters.size());
    double sum = 0;
    for (int m = 0; m < micro_batches; ++m) {
      const auto part = [&](const torch::Tensor& all) { return all.narrow(0, m * samples, samples); };
      const torch::Tensor loss = loss_of(model->forward(part(batch.input)), part(batch.target)) / micro_batches;
      sum += loss.item<double>();
      auto gradients = torch::autograd::grad({loss}, parameters, {}, false, false, true);
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (!gradients[i].defined()) gradients[i] = torch::zeros_like(parameters[i]);
        if (m % (micro_batches / leaves) == 0) {
          sums[i].push_back(gradients[i]);
        } else {
          sums[i].back() = sums[i].back() + gradients[i];
        }
      }
    }
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = sum_leaves(sums[i]);
    optimizer.step();
    result.losses.push_back(sum);
  }
  for (const auto& item : model->named_parameters()) result.values[item.key()] = item.value().detach().clone();
  for (const auto& item : model->named_buffers()) result.values[item.key()] = item.value().detach().clone();
  return result;
}

/// What differs from `expected` after the same training in a pipeline; empty: nothing, and all weights have been seen.
inline std::string differences(int num_ranks, const PipelineOptions& options, const Weights& expected, int steps,
                               torch::nn::Sequential (*make_model)() = small_model, int64_t samples = 2) {
  std::vector<torch::nn::Sequential> models;  // made in turn: libtorch has one random seed for all threads
  for (int rank = 0; rank < num_ranks; ++rank) models.push_back(make_model());
  std::vector<std::string> found(static_cast<size_t>(num_ranks));
  std::vector<size_t> seen(static_cast<size_t>(num_ranks));
  run_as_threads(num_ranks, [&](World& world) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(world.rank());
    Pipeline pipeline(world.comm(), models[rank], options);
    auto optimizer = optimizer_of(pipeline.parameters());
    for (int step = 0; step < steps; ++step) {
      const int64_t batch_part = samples * options.num_micro_batches;
      const Batch batch = batch_of(step, batch_part * options.num_replicas);
      const auto part = [&](const torch::Tensor& all) {
        return all.narrow(0, pipeline.replica() * batch_part, batch_part);
      };
      const double loss = pipeline.step(pipeline.has_first_stage() ? part(batch.input) : torch::Tensor(),
                                        pipeline.has_last_stage() ? part(batch.target) : torch::Tensor(), loss_of);
      optimizer.step();
      if (loss != expected.losses[static_cast<size_t>(step)]) found[rank] += fmt::format("loss of step {}; ", step);
    }
    for (const auto& [name, parameter] : pipeline.named_parameters()) {
      ++seen[rank];
      if (!at::equal(parameter.detach(), expected.values.at(name))) found[rank] += name + "; ";
    }
    const auto buffers = models[rank]->named_buffers();
    for (const int stage : pipeline.program().own_stages()) {
      const LayerRange range = pipeline.partition()[static_cast<size_t>(stage)];
      for (const auto& item : buffers) {
        const int layer = std::stoi(item.key());
        if (layer < range.first || layer >= range.last) continue;
        ++seen[rank];
        if (!at::equal(item.value(), expected.values.at(item.key()))) found[rank] += item.key() + "; ";
      }
    }
  });
  std::string text;
  size_t sum = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string& own = found[static_cast<size_t>(rank)];
    if (!own.empty()) text += fmt::format("rank {}: {}", rank, own);
    sum += seen[static_cast<size_t>(rank)];
  }
  const size_t all = expected.values.size() * static_cast<size_t>(options.num_replicas);
  return sum == all ? text : text + fmt::format("{} of {} weights", sum, all);
}

}  // namespace trireme
