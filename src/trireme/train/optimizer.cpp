#include "trireme/train/optimizer.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "trireme/optimizer/rule.h"

namespace trireme {
namespace {

constexpr int64_t kPerThread = 1 << 16;  // minimum elements per thread: below that, threads cost more than they save

double scheduled(const OptimizerConfig& config, int64_t step, int64_t num_steps) {
  if (step < config.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  if (config.schedule == LrSchedule::kStep) {
    return config.step_every == 0 ? 1 : std::pow(config.step_factor, static_cast<double>(step / config.step_every));
  }
  const auto span = static_cast<double>(std::max<int64_t>(num_steps - config.warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup_steps) / span);
  if (config.schedule == LrSchedule::kCosine) {
    return config.min_lr + (1 - config.min_lr) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
  if (config.schedule == LrSchedule::kLinear) return 1 - (1 - config.min_lr) * done;
  return 1;
}

}  // namespace

UpdateRule update_rule(const OptimizerConfig& config) {
  UpdateRule rule;
  rule.kind = config.kind;
  rule.momentum = config.momentum;
  rule.nesterov = config.nesterov;
  rule.beta1 = config.beta1;
  rule.beta2 = config.beta2;
  rule.eps = config.eps;
  rule.weight_decay = config.weight_decay;
  return rule;
}

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t num_steps, int64_t dp) {
  double lr = config.lr;
  if (config.scale_lr == LrScaling::kLinear) lr *= static_cast<double>(dp);
  if (config.scale_lr == LrScaling::kSqrt) lr *= std::sqrt(static_cast<double>(dp));
  return lr * scheduled(config, step, num_steps);
}

Optimizer::Optimizer(const OptimizerConfig& config, ParameterStore& parameters)
    : config_(config), rule_(update_rule(config)), parameters_(parameters) {
  if (rule_.has_first()) first_ = parameters.optimizer_zeros(parameters.num_owned());
  if (rule_.has_second()) second_ = parameters.optimizer_zeros(parameters.num_owned());
}

void Optimizer::update(const std::function<torch::Tensor(size_t)>& gradient, double factor, double lr, int64_t step) {
  torch::NoGradGuard no_grad;
  const auto& shards = parameters_.shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    const ParameterStore::Shard& shard = shards[i];
    const torch::Tensor g = gradient(i);
    if (!g.defined()) continue;
    const ShardState state = state_of(i);
    const bool decays = config_.decay == Decay::kAll || parameters_.entries()[shard.entry].is_matrix;
    float* const master = shard.master.data_ptr<float>();
    const float* const values = g.const_data_ptr<float>();
    // Elements are independent, so the number of threads changes no bit.
    at::parallel_for(0, shard.count, kPerThread, [&](int64_t begin, int64_t end) {
      const auto from = [begin](float* array) { return array ? array + begin : nullptr; };
      rule_.apply({.factor = factor, .lr = lr, .step = step, .decays = decays}, master + begin, values + begin,
                  from(state.first), from(state.second), static_cast<size_t>(end - begin));
    });
  }
  parameters_.publish();
}

Optimizer::ShardState Optimizer::state_of(size_t shard) const {
  const auto at = [&](const torch::Tensor& state) {
    return state.defined() ? state.data_ptr<float>() + parameters_.shards()[shard].offset : nullptr;
  };
  return {at(first_), at(second_)};
}

std::vector<Optimizer::Kind> Optimizer::state() const {
  std::vector<Kind> kinds;
  const auto add = [&](const std::string& name, const torch::Tensor& flat) {
    if (!flat.defined()) return;
    kinds.push_back({name, [this, flat](size_t shard) {
                       const ParameterStore::Shard& place = parameters_.shards()[shard];
                       return flat.narrow(0, place.offset, place.count);
                     }});
  };
  add(config_.kind == OptimizerKind::kSgd ? "sgd.momentum" : "adam.first", first_);
  add("adam.second", second_);
  return kinds;
}

size_t Optimizer::num_bytes() const {
  return (first_.defined() ? first_.nbytes() : 0) + (second_.defined() ? second_.nbytes() : 0);
}

}  // namespace trireme
