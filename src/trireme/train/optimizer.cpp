#include "trireme/train/optimizer.h"

#include <cmath>
#include <numbers>

#include "trireme/optimizer/rule.h"

namespace trireme {
namespace {

double scheduled(const OptimizerConfig& config, int64_t step, int64_t num_steps) {
  if (step < config.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  if (config.schedule == "step") {
    return config.step_every == 0 ? 1 : std::pow(config.step_factor, static_cast<double>(step / config.step_every));
  }
  const auto span = static_cast<double>(std::max<int64_t>(num_steps - config.warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup_steps) / span);
  if (config.schedule == "cosine") {
    return config.min_lr + (1 - config.min_lr) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }
  if (config.schedule == "linear") return 1 - (1 - config.min_lr) * done;
  return 1;
}

}  // namespace

UpdateRule update_rule(const OptimizerConfig& config) {
  UpdateRule rule;
  rule.kind = config.kind == "sgd"     ? OptimizerKind::kSgd
              : config.kind == "adamw" ? OptimizerKind::kAdamW
                                       : OptimizerKind::kAdam;
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
  if (config.scale_lr == "linear") lr *= static_cast<double>(dp);
  if (config.scale_lr == "sqrt") lr *= std::sqrt(static_cast<double>(dp));
  return lr * scheduled(config, step, num_steps);
}

Optimizer::Optimizer(const OptimizerConfig& config, ParameterStore& parameters)
    : config_(config), rule_(update_rule(config)), parameters_(parameters) {
  if (rule_.has_first()) first_ = torch::zeros_like(parameters.master());
  if (rule_.has_second()) second_ = torch::zeros_like(parameters.master());
}

void Optimizer::update(const std::function<torch::Tensor(size_t)>& gradient, double factor, double lr, int64_t step) {
  torch::NoGradGuard no_grad;
  const auto& entries = parameters_.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    const ParameterStore::Entry& entry = entries[i];
    const torch::Tensor g = gradient(i);
    if (!g.defined()) continue;
    const EntryState state = state_of(i);
    rule_.apply({.factor = factor, .lr = lr, .step = step, .decays = config_.decay == "all" || entry.is_matrix},
                entry.master.data_ptr<float>(), g.const_data_ptr<float>(), state.first, state.second,
                static_cast<size_t>(entry.master.numel()));
  }
  parameters_.publish();
}

Optimizer::EntryState Optimizer::state_of(size_t entry) const {
  const auto at = [&](const torch::Tensor& state) {
    return state.defined() ? state.data_ptr<float>() + parameters_.entries()[entry].offset : nullptr;
  };
  return {at(first_), at(second_)};
}

std::vector<std::pair<std::string, torch::Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  const std::string kind = config_.kind == "sgd" ? "sgd.momentum." : "adam.first.";
  for (const ParameterStore::Entry& entry : parameters_.entries()) {
    const auto part = [&](const torch::Tensor& flat) {
      return ParameterStore::as_whole(entry,
                                      flat.narrow(0, entry.offset, entry.master.numel()).view(entry.master.sizes()));
    };
    if (first_.defined()) all.emplace_back(kind + entry.name, part(first_));
    if (second_.defined()) all.emplace_back("adam.second." + entry.name, part(second_));
  }
  return all;
}

size_t Optimizer::num_bytes() const {
  return (first_.defined() ? first_.nbytes() : 0) + (second_.defined() ? second_.nbytes() : 0);
}

}  // namespace trireme
