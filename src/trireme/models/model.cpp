#include "trireme/models/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/functions.h"
#include "trireme/tensor/recompute.h"

namespace trireme {

torch::Tensor Layer::run(const torch::Tensor& x) {
  if (again_ != Again::kAll) return forward(x);
  const auto self = std::static_pointer_cast<Layer>(shared_from_this());
  return recompute([self](const torch::Tensor& y) { return self->forward(y); }, x);
}

torch::Tensor Layer::run_attention(const torch::Tensor& x,
                                   const std::function<torch::Tensor(const torch::Tensor&)>& part) {
  return again_ == Again::kAttention ? recompute(part, x) : part(x);
}

void Model::set_recompute(const Recompute& recompute) {
  int64_t number = 0;
  for (const auto& layer : layers_) {
    if (!layer->is_numbered()) continue;
    layer->set_again(recompute.covers(number++) ? Layer::Again::kAll
                     : recompute.attention      ? Layer::Again::kAttention
                                                : Layer::Again::kNothing);
  }
  if (recompute.last() < number) return;
  throw UsageError(fmt::format("train.recompute names layer {}, but the model has {}", recompute.last(), number),
                   fmt::format("layers are numbered from 0 to {}", number - 1));
}

void Model::add_layer(const std::string& name, std::shared_ptr<Layer> layer) {
  torch::nn::Module* parent = this;
  const auto parts = split(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const std::string part(parts[i]);
    const auto groups = parent->named_children();
    const auto* group = groups.find(part);
    parent = group ? group->get() : parent->register_module(part, std::make_shared<torch::nn::Module>()).get();
  }
  layers_.push_back(parent->register_module(std::string(parts.back()), std::move(layer)));
  registered_.push_back({parent, {std::string(parts.back())}});
}

void Model::add_layer(std::shared_ptr<Layer> layer) {
  registered_.push_back({this, {}});
  for (const auto& child : layer->named_children()) {
    register_module(child.key(), child.value());
    registered_.back().names.push_back(child.key());
  }
  layers_.push_back(std::move(layer));
}

void Model::keep_layers(const std::vector<bool>& kept) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (kept.at(i)) continue;
    for (const std::string& name : registered_[i].names) registered_[i].parent->unregister_module(name);
    layers_[i] = nullptr;
  }
}

std::vector<double> Model::layer_costs() const {
  std::vector<double> costs;
  for (const auto& layer : layers_) {
    costs.push_back(0);
    for (const torch::Tensor& parameter : layer->parameters()) {
      if (parameter.dim() >= 2) costs.back() += static_cast<double>(parameter.numel());
    }
  }
  return costs;
}

torch::Tensor Model::loss(const torch::Tensor& logits, const torch::Tensor& target) const {
  return ops::cross_entropy(logits, target);
}

std::vector<Statistic> Model::statistics(size_t first, size_t last) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : named_modules({}, false)) names[module.value().get()] = module.key();
  std::vector<Statistic> all;
  for (size_t i = first; i < last; ++i) {
    for (const auto& module : layers_[i]->modules()) {
      auto* norm = dynamic_cast<BatchNorm*>(module.get());
      if (!norm) continue;
      const std::string& name = names.at(norm);
      all.push_back({name + ".running_mean", norm->running_mean, &norm->observed_mean, norm->momentum()});
      all.push_back({name + ".running_var", norm->running_var, &norm->observed_var, norm->momentum()});
    }
  }
  return all;
}

Initial Model::initial(const std::string& parameter, const std::vector<int64_t>& shape) const {
  return default_initial(parameter, shape);
}

torch::Tensor initial_values(const Model& model, const std::string& name, at::IntArrayRef sizes, uint64_t seed) {
  const Initial initial = model.initial(name, sizes.vec());
  auto values = at::empty(sizes, torch::kFloat32);
  float* data = values.mutable_data_ptr<float>();
  at::parallel_for(0, values.numel(), 1 << 15, [&](int64_t first, int64_t end) {
    fill_initial(initial, seed, name, {data + first, data + end}, static_cast<uint64_t>(first));
  });
  return values;
}

void initialize(Model& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const auto fill = [&](const std::string& name, torch::Tensor parameter) {
    parameter.copy_(initial_values(model, name, parameter.sizes(), seed));
  };
  const auto parameters = model.named_parameters();
  for (const auto& item : parameters) fill(item.key(), item.value());
  for (const SharedUse& shared : model.shared_uses()) {
    if (!parameters.contains(shared.parameter)) fill(shared.parameter, *shared.use);
  }
}

int64_t count_correct(const torch::Tensor& logits, const torch::Tensor& target) {
  return logits.argmax(-1).eq(target).sum().item<int64_t>();
}

}  // namespace trireme
