#include "trireme/runtime/stage_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/runtime/pipeline_messages.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

std::optional<std::string> add_sources(std::vector<GradientSource>& sources, const torch::nn::Module& module,
                                       const std::string& prefix, int unit) {
  const size_t before = sources.size();
  std::optional<std::string> known_before;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto known = std::find_if(sources.begin(), sources.end(),
                                    [&](const GradientSource& each) { return each.leaf.is_same(item.value()); });
    if (known == sources.end()) {
      sources.push_back({.name = prefix + item.key(), .leaf = item.value(), .unit = unit});
    } else if (at(known - sources.begin()) < before && !known_before) {
      known_before = prefix + item.key();
    }
  }
  return known_before;
}

void require_one_dtype(const std::vector<GradientSource>& sources, const std::string& cure) {
  const auto text = [](const GradientSource& source) {
    return fmt::format("{} {}", source.name, form_of(source.leaf).to_string());
  };
  for (const GradientSource& source : sources) {
    if (source.leaf.scalar_type() == sources[0].leaf.scalar_type()) continue;
    throw UsageError(fmt::format("{} is of another type than {}", text(source), text(sources[0])), cure);
  }
}

StageSet::StageSet(std::vector<StageSources> stages, std::vector<TiedParameter> tied, StageSetOptions options)
    : options_(std::move(options)), tied_(std::move(tied)) {
  if (options_.weights) make_parameters(stages);
  for (StageSources& each : stages) {
    GradientStoreOptions gradients = options_.gradients;
    if (!options_.weights && !each.sources.empty()) gradients.type = each.sources[0].leaf.scalar_type();
    stages_.push_back({.number = each.number, .layers = each.layers, .gradients = {}, .weights = {}});
    stages_.back().gradients = std::make_unique<GradientStore>(options_.replicas, std::move(each.sources), gradients);
  }
  if (shards_weights()) make_layer_weights();
}

const TiedParameter* StageSet::tied_use(const SourcePlace& place) const {
  const auto found = std::find_if(tied_.begin(), tied_.end(), [&](const TiedParameter& each) {
    return each.use && each.use->stage == place.stage && each.use->source == place.source;
  });
  return found == tied_.end() ? nullptr : &*found;
}

/// A second use computes with the owner's memory if this rank has the owner, else with a copy.
void StageSet::make_parameters(const std::vector<StageSources>& stages) {
  const auto& [compute_type, sharding, value] = *options_.weights;
  std::vector<ParameterGroups> groups;
  for (const StageSources& stage : stages) {
    std::vector<ParameterGroups::Item> items;
    for (const GradientSource& source : stage.sources) {
      const TiedParameter* const tied = tied_use({groups.size(), items.size()});
      if (tied == nullptr) {
        items.push_back({source.name, source.leaf});
      } else {
        items.push_back({tied->name, shards_weights() && !tied->is_local() ? source.leaf : torch::Tensor(), false});
      }
    }
    groups.push_back({std::move(items), layout_of(stage.sources, options_.gradients)});
  }
  parameters_ = std::make_unique<ParameterStore>(std::move(groups), compute_type, sharding, value);
  for (const TiedParameter& tied : tied_) {
    if (!tied.use) continue;
    torch::Tensor leaf = stages[tied.use->stage].sources[tied.use->source].leaf;
    if (tied.is_local()) {
      leaf.set_data(stages[tied.owner->stage].sources[tied.owner->source].leaf.detach());
    } else if (!shards_weights()) {
      const torch::Tensor part = value(tied.name, leaf).to(compute_type);
      const MeshSpec* spec = mesh_spec(leaf);
      leaf.set_data(spec ? wrap_local(part, spec->mesh, spec->layout, leaf.sizes()) : part);
    }
  }
}

/// Lists the groups that each layer needs, wherever its tied weights are.
void StageSet::make_layer_weights() {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const LayerRange range = stages_[stage].layers;
    std::vector<std::set<LayerWeights::Group>> needed(at(range.last - range.first));
    const std::vector<GradientSource>& sources = stages_[stage].gradients->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      const TiedParameter* const tied = tied_use({stage, i});
      const SourcePlace lies = tied && tied->is_local() ? *tied->owner : SourcePlace{stage, i};
      if (is_sharded(lies)) needed[at(sources[i].unit - range.first)].insert({lies.stage, group_of(lies)});
    }
    std::vector<std::vector<LayerWeights::Group>> groups;
    for (const auto& of_layer : needed) groups.emplace_back(of_layer.begin(), of_layer.end());
    stages_[stage].weights = std::make_unique<LayerWeights>(*parameters_, stage, at(range.first), std::move(groups),
                                                            options_.weights->sharding.at_once);
  }
}

const StageSet::Stage& StageSet::stage(int number) const {
  return *std::find_if(stages_.begin(), stages_.end(), [&](const Stage& each) { return each.number == number; });
}

const StageSet::Stage& StageSet::stage_of_layer(size_t layer) const {
  return *std::find_if(stages_.begin(), stages_.end(),
                       [&](const Stage& each) { return std::cmp_less(layer, each.layers.last); });
}

torch::Tensor StageSet::gradient(size_t number) const {
  const ParameterStore::Shard& shard = parameters_->shards()[number];
  const GradientStore& store = *stages_[shard.stage].gradients;
  const torch::Tensor whole = store.is_sharded(shard.group) ? store.shard(shard.group) : store.group(0, shard.group);
  return whole.narrow(0, shard.at, shard.count);
}

torch::Tensor StageSet::gradient_of(const SourcePlace& place) const {
  return is_sharded(place) ? store(place).shard(group_of(place)) : store(place).gradient(0, place.source);
}

torch::Tensor StageSet::weight_of(const SourcePlace& place) const {
  if (shards_weights() && is_sharded(place)) return parameters_->own_part(place.stage, place.source);
  return local_part(source(place).leaf).detach();
}

void StageSet::mark_written(const SourcePlace& place) const {
  if (shards_weights() && is_sharded(place)) parameters_->mark_stale(place.stage, group_of(place));
}

std::vector<TiedWeights::Tie> StageSet::ties() const {
  std::vector<TiedWeights::Tie> ties;
  for (const TiedParameter& tied : tied_) {
    TiedWeights::Tie& tie = ties.emplace_back(tied.owner_rank, tied.use_rank);
    if (tied.owner) {
      tie.owner = {[this, own = *tied.owner](const torch::Tensor& sum) { gradient_of(own).add_(sum); },
                   [this, own = *tied.owner] { return weight_of(own); }};
    }
    if (tied.use) {
      tie.use = {[this, use = *tied.use] { return gradient_of(use); },
                 [this, use = *tied.use](const torch::Tensor& weight) {
                   weight_of(use).copy_(weight);
                   mark_written(use);
                 }};
    }
  }
  return ties;
}

void StageSet::before(size_t layer) const {
  if (LayerWeights* weights = stage_of_layer(layer).weights.get()) weights->before(layer);
}

void StageSet::after(size_t layer, const Tensors& outputs) const {
  if (LayerWeights* weights = stage_of_layer(layer).weights.get()) weights->after(layer, outputs);
}

size_t StageSet::second_use_bytes() const {
  size_t sum = 0;
  for (const TiedParameter& tied : tied_) {
    if (tied.use) sum += store(*tied.use).bytes_of(tied.use->source);
  }
  return sum;
}

size_t StageSet::gradient_bytes() const {
  size_t sum = 0;
  for (const Stage& stage : stages_) sum += stage.gradients->num_bytes();
  return sum - second_use_bytes();
}

size_t StageSet::gradient_buffer_bytes() const {
  size_t sum = second_use_bytes();
  for (const Stage& stage : stages_) sum += stage.gradients->buffer_bytes();
  return sum;
}

}  // namespace trireme
