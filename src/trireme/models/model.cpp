#include "trireme/models/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/functions.h"
#include "trireme/models/modules.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/recompute.h"
#include "trireme/tensor/shared_tensor.h"

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

torch::Tensor initial_values(const Model& model, const std::string& name, const torch::Tensor& parameter,
                             uint64_t seed) {
  const auto sizes = parameter.sizes();
  const Initial initial = model.initial(name, sizes.vec());
  auto values = at::empty(local_part(parameter).sizes(), torch::kFloat32);
  float* at = values.mutable_data_ptr<float>();
  const auto fill = [&](int64_t first, int64_t count) {  // that many elements of the whole, which lie together here
    at::parallel_for(0, count, 1 << 15, [&](int64_t begin, int64_t end) {
      fill_initial(initial, seed, name, {at + begin, at + end}, static_cast<uint64_t>(first + begin));
    });
    at += count;
  };
  const MeshSpec* spec = mesh_spec(parameter);
  if (!spec || spec->layout->is_replicated) {
    fill(0, values.numel());
    return values;
  }
  const std::vector<Placement>& placements = spec->layout->placements;
  const auto is_cut = [](const Placement& placement) { return placement.is_shard(); };
  const auto cut = std::find_if(placements.begin(), placements.end(), is_cut);
  if (std::count_if(placements.begin(), placements.end(), is_cut) != 1) {
    throw Error(fmt::format("{} is not cut along one axis alone", name));
  }
  const auto axis = static_cast<size_t>(cut - placements.begin()), dim = static_cast<size_t>(cut->dim);
  const int64_t extent = sizes[dim], inner = c10::multiply_integers(sizes.slice(dim + 1));
  const std::vector<Piece> own = pieces(*cut, extent, spec->mesh->axis_sizes()[axis], spec->mesh->coordinates()[axis]);
  for (int64_t outer = 0; outer < c10::multiply_integers(sizes.slice(0, dim)); ++outer) {
    for (const Piece& piece : own) fill((outer * extent + piece.first) * inner, piece.length * inner);
  }
  return values;
}

void initialize(Model& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const auto give = [&](const std::string& name, torch::Tensor parameter) {
    parameter.set_data(initial_values(model, name, parameter, seed).to(parameter.device(), parameter.scalar_type()));
  };
  const auto parameters = model.named_parameters();
  for (const auto& item : parameters) give(item.key(), item.value());
  for (const SharedUse& shared : model.shared_uses()) {
    if (const torch::Tensor* parameter = parameters.find(shared.parameter)) {
      shared.use->set_data(parameter->detach());
    } else {
      give(shared.parameter, *shared.use);
    }
  }
}

torch::Tensor unset(at::IntArrayRef sizes) { return without_memory(sizes, torch::kFloat32); }

int64_t count_correct(const torch::Tensor& logits, const torch::Tensor& target) {
  return logits.argmax(-1).eq(target).sum().item<int64_t>();
}

}  // namespace trireme
