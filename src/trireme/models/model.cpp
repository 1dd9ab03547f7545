#include "trireme/models/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/functions.h"
#include "trireme/models/modules.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

namespace {

/// [Note: Layouts between layers]
/// libtorch's kernels choose their algorithms by the strides of their inputs, and the bits differ. Tensors that cross a
/// cut of the model are sent contiguously, and so are their gradients; so both are made contiguous wherever the model
/// could be cut.
Tensors made_contiguous(Tensors outputs, const Tensors& inputs) {
  for (torch::Tensor& output : outputs) {
    const auto is_it = [&](const torch::Tensor& input) { return input.is_same(output); };
    if (is_mesh_tensor(output) || std::any_of(inputs.begin(), inputs.end(), is_it)) continue;
    output = output.contiguous();
    if (output.requires_grad())
      output.register_hook([](const torch::Tensor& gradient) { return gradient.contiguous(); });
  }
  return outputs;
}

}  // namespace

Tensors Model::forward_layers(Tensors x, size_t first, size_t last) const {
  for (const Followed& followed : followed_) {  // a model may put some into evaluation mode after train()
    if (layers_[followed.layer] && !followed.module->is_training()) followed.norm->set_mode(false);
  }
  for (size_t i = first; i < last; ++i) {
    x = run_layer(i, [&] {
      Tensors outputs = layers_[i]->run(x);
      return modules_of_ == Modules::kTorch ? made_contiguous(std::move(outputs), x) : outputs;
    });
  }
  return x;
}

void Model::set_recompute(const Recompute& recompute) {
  int64_t number = 0;
  for (const auto& layer : layers_) {
    if (!layer->is_numbered()) continue;
    layer->set_again(recompute.covers(number++)                    ? Layer::Again::kAll
                     : recompute.kind == RecomputeKind::kSelective ? Layer::Again::kAttention
                                                                   : Layer::Again::kNothing);
  }
  if (recompute.last() < number) return;
  throw UsageError(fmt::format("train.recompute names layer {}, but the model has {}", recompute.last(), number),
                   fmt::format("layers are numbered from 0 to {}", number - 1));
}

/// Finds the parent where a module of this name is registered, and the module's name in it.
std::pair<torch::nn::Module*, std::string> Model::place_of(const std::string& name) {
  torch::nn::Module* parent = this;
  const auto parts = split(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const std::string part(parts[i]);
    const auto groups = parent->named_children();
    const auto* group = groups.find(part);
    parent = group ? group->get() : parent->register_module(part, std::make_shared<torch::nn::Module>()).get();
  }
  return {parent, std::string(parts.back())};
}

void Model::add_layer(const std::string& name, std::shared_ptr<Layer> layer) { add_module(name, layer, layer); }

void Model::add_module(const std::string& name, std::shared_ptr<torch::nn::Module> module,
                       std::shared_ptr<Layer> layer) {
  const auto [parent, own_name] = place_of(name);
  parent->register_module(own_name, std::move(module));
  append(std::move(layer), {parent, {own_name}});
}

void Model::add_layer(std::shared_ptr<Layer> layer) {
  Registered registered{this, {}};
  for (const auto& child : layer->named_children()) {
    register_module(child.key(), child.value());
    registered.names.push_back(child.key());
  }
  append(std::move(layer), std::move(registered));
}

void Model::append(std::shared_ptr<Layer> layer, Registered registered) {
  const size_t number = layers_.size();
  for (const auto& parameter : layer->named_parameters()) {
    for (size_t earlier = 0; earlier < number; ++earlier) {
      for (const torch::Tensor& other : layers_[earlier]->parameters()) {
        if (!other.is_same(parameter.value())) continue;
        throw UsageError(
            fmt::format("layers {} and {} of a model have the parameter {} both", earlier, number, parameter.key()),
            "put both uses into one layer, or give the second a parameter of its own and tie() it");
      }
    }
  }
  if (modules_of_ == Modules::kTorch) {
    layer->set_random_number(number);
    for (const auto& module : layer->modules()) {
      if (auto norm = follow_norm(*module)) followed_.push_back({number, module.get(), std::move(norm)});
    }
  }
  layers_.push_back(std::move(layer));
  registered_.push_back(std::move(registered));
}

namespace {

/// Access to a module's own parameters, because libtorch has no way to remove one.
struct OwnParameters : torch::nn::Module {
  static auto& of(torch::nn::Module& module) { return module.*(&OwnParameters::parameters_); }
};

}  // namespace

void Model::tie(torch::Tensor& use, const std::string& parameter) {
  const auto parameters = named_parameters();
  const torch::Tensor* owner = parameters.find(parameter);
  if (!owner) throw UsageError(fmt::format("tie(): the model has no parameter {}", parameter));
  if (owner->sizes() != use.sizes()) {
    throw UsageError(fmt::format("tie(): {} has the sizes {}, its second use {}", parameter,
                                 fmt::streamed(owner->sizes()), fmt::streamed(use.sizes())));
  }
  if (layers_.empty()) throw UsageError("tie(): the model has no layer yet");
  for (const auto& module : layers_.back()->modules()) {
    auto& own = OwnParameters::of(*module);
    for (const auto& item : own.pairs()) {
      if (!item.second.is_same(use)) continue;
      own.erase(item.first);
      use.set_data(owner->detach());
      tied_uses_.push_back({parameter, &use, layers_.size() - 1});
      return;
    }
  }
  throw UsageError(
      fmt::format("tie(): the second use of {} is no parameter of the layer that was added last", parameter),
      "call tie() right behind add_layer()");
}

void Model::train(bool on) {
  torch::nn::Module::train(on);
  for (const auto& layer : layers_) {  // layers that are not registered themselves
    if (layer) layer->train(on);
  }
  for (const Followed& followed : followed_) {
    if (layers_[followed.layer]) followed.norm->set_mode(on);
  }
}

void Model::set_built_values_aside() {
  if (modules_of_ == Modules::kTrireme) return;
  for (const auto& item : named_parameters()) {
    const torch::Tensor& value = item.value();
    if (value.storage().data() != nullptr) built_values_[item.key()] = value.detach().clone();
  }
}

void Model::keep_layers(const std::vector<bool>& kept) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (kept.at(i)) continue;
    for (const std::string& name : registered_[i].names) registered_[i].parent->unregister_module(name);
    layers_[i] = nullptr;
    std::erase_if(tied_uses_, [&](const TiedUse& use) { return use.layer == i; });
  }
}

std::vector<double> Model::layer_costs() const {
  std::vector<double> costs;
  for (const auto& layer : layers_) {
    costs.push_back(0);
    for (const auto& module : layer->modules()) {
      if (dynamic_cast<const torch::nn::EmbeddingImpl*>(module.get())) continue;  // only looks up
      for (const torch::Tensor& parameter : module->parameters(/*recurse=*/false)) {
        if (parameter.dim() >= 2) costs.back() += static_cast<double>(parameter.numel());
      }
    }
  }
  for (const TiedUse& use : tied_uses_) costs[use.layer] += static_cast<double>(use.use->numel());
  return costs;
}

torch::Tensor Model::forward_loss(Tensors x, const Tensors& targets, size_t first) const {
  const Tensors outputs = forward_layers(std::move(x), first, layers_.size());
  if (modules_of_ == Modules::kTrireme || outputs.empty()) return loss(outputs, targets);
  return inside::with_numbers_of(layers_.size(), outputs[0].device(), [&] { return Tensors{loss(outputs, targets)}; })
      .at(0);
}

torch::Tensor Model::loss(const Tensors& outputs, const Tensors& targets) const {
  return ops::cross_entropy(outputs.at(0), targets.at(0));
}

constexpr int64_t kIgnored = -100;  // libtorch's default ignore_index

Score Model::score(const Tensors& outputs, const Tensors& targets) const {
  const torch::Tensor &logits = outputs.at(0), &target = targets.at(0);
  const int64_t predictions = target.is_floating_point() ? target.numel() : target.ne(kIgnored).sum().item<int64_t>();
  Score score{.correct = std::nan(""), .predictions = predictions};
  if (predictions > 0) score.loss = loss(outputs, targets).item<double>() * static_cast<double>(predictions);
  if (logits.dim() == target.dim() + 1 && !target.is_floating_point()) {
    score.correct = static_cast<double>(logits.argmax(-1).eq(target).sum().item<int64_t>());
  }
  return score;
}

LayoutRules Model::tensor_parallel_rules(int ranks) const {
  throw UsageError(fmt::format("parallel.tp = {}: the model does not say how its parameters are cut", ranks),
                   "override Model::tensor_parallel_rules(), or leave parallel.tp at 1");
}

std::vector<Statistic> Model::statistics(size_t first, size_t last) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : named_modules({}, false)) names[module.value().get()] = module.key();
  std::vector<Statistic> all;
  for (size_t i = first; i < last; ++i) {
    for (const auto& module : layers_[i]->modules()) {
      if (auto* norm = dynamic_cast<BatchNorm*>(module.get())) {
        const std::string& name = names.at(norm);
        all.push_back({name + ".running_mean", norm->running_mean, &norm->observed_mean, norm->momentum()});
        all.push_back({name + ".running_var", norm->running_var, &norm->observed_var, norm->momentum()});
      }
      for (const Followed& followed : followed_) {
        if (followed.module == module.get()) followed.norm->list_statistics(names.at(followed.module), all);
      }
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
  auto values = at::empty(local_part(parameter).sizes(), torch::kFloat32);
  float* at = values.mutable_data_ptr<float>();
  const auto built = model.built_values().find(name);
  const torch::Tensor whole = built == model.built_values().end()
                                  ? torch::Tensor()
                                  : built->second.to(torch::kCPU, torch::kFloat32).contiguous();
  const Initial initial = whole.defined() ? Initial() : model.initial(name, sizes.vec());
  const auto fill = [&](int64_t first, int64_t count) {  // `count` elements of the whole, which are contiguous here
    if (whole.defined()) {
      at = std::copy_n(whole.const_data_ptr<float>() + first, count, at);
      return;
    }
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
  for (const TiedUse& tied : model.tied_uses()) {
    if (const torch::Tensor* parameter = parameters.find(tied.parameter)) {
      tied.use->set_data(parameter->detach());
    } else {
      give(tied.parameter, *tied.use);
    }
  }
}

torch::Tensor unset(at::IntArrayRef sizes) { return without_memory(sizes, torch::kFloat32); }

}  // namespace trireme
