#include "trireme/train/model_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/config/pipeline.h"
#include "trireme/layout/redistribution.h"
#include "trireme/parallel/tensor/recipes.h"
#include "trireme/program/check/check.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/zero.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {
namespace {

DataParallelShape data_parallel_shape(const BatchPlan& plan, int num_groups) {
  return {static_cast<int>(plan.num_micro_batches), static_cast<int>(plan.leaves), static_cast<int>(plan.dp),
          num_groups, std::vector<int>(plan.shares.begin(), plan.shares.end())};
}

/// Which layer has a parameter.
std::map<const void*, int> layers_of_parameters(const Model& model) {
  std::map<const void*, int> layers;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    if (!model.layers()[i]) continue;
    for (const torch::Tensor& parameter : model.layers()[i]->parameters()) {
      layers.emplace(parameter.unsafeGetTensorImpl(), static_cast<int>(i));
    }
  }
  return layers;
}

}  // namespace

bool needs_samples(const Config& config, const BatchPlan& plan, int pipeline_rank) {
  if (config.parallel.pp == 1) return true;
  const std::vector<int> ranks = pipeline_schedule(config, plan).rank_of_stage;
  return ranks.front() == pipeline_rank || ranks.back() == pipeline_rank;
}

ModelPart::ModelPart(const Config& config, const BatchPlan& plan, const RankGroups& groups, const torch::Device& device,
                     torch::ScalarType compute_type)
    : groups_(groups),
      device_(device),
      seed_(static_cast<uint64_t>(config.train.seed)),
      zero_(groups.sharers() ? static_cast<int>(config.parallel.zero) : 0),
      keeps_weights_(config.parallel.zero_keep),
      accumulation_(plan.accumulation * groups.lanes),
      zero_asked_{.zero = static_cast<int>(config.parallel.zero),
                  .keep = config.parallel.zero_keep,
                  .each_micro_batch = config.parallel.zero > 1 && config.parallel.zero_accumulation == "shares"},
      travel_type_(config.precision.gradients == "compute" ? compute_type : torch::kFloat32),
      model_(build_model(config.model)) {
  cut(config, plan);
  list_weights();
  if (groups.pp > 1) {
    std::vector<bool> kept;
    for (const int rank : rank_of_layer_) kept.push_back(rank == groups.pipeline_rank);
    model_->keep_layers(kept);
  }
  place_parameters();
  if (device.is_cuda()) model_->to(device);  // buffers
  distribute_parameters(config);
  make_stores(config, plan, compute_type);
  if (!groups.stages().empty()) make_lanes(config);
  for (Weight& weight : weights_) weight.entry = parameters_->find(weight.name);
  if (zero_ > 0) make_layer_weights();
}

/// On their device. They keep their shapes alone, until the store gives each its memory: so nobody ever holds more of a
/// model than what is his.
void ModelPart::place_parameters() const {
  const auto place = [&](torch::Tensor parameter) {
    parameter.set_data(without_memory(parameter.sizes(), parameter.options().device(device_).requires_grad(false)));
  };
  for (torch::Tensor& parameter : model_->parameters()) place(parameter);
  for (const SharedUse& shared : model_->shared_uses()) place(*shared.use);
}

torch::Tensor ModelPart::initial_part(const std::string& name, const torch::Tensor& parameter) const {
  return initial_values(*model_, name, parameter, seed_).to(device_);
}

/// Layers into stages, and what is computed again.
void ModelPart::cut(const Config& config, const BatchPlan& plan) {
  const Recompute recompute = parse_recompute(config.train.recompute);
  const int num_layers = static_cast<int>(model_->layers().size());
  if (groups_.pp == 1) {
    model_->set_recompute(recompute);
    partition_ = {{0, num_layers}};
    rank_of_layer_.assign(static_cast<size_t>(num_layers), 0);
    return;
  }
  // A stage that is computed again as a whole keeps its input alone.
  const bool by_stages = config.train.recompute == "full";
  if (!by_stages) model_->set_recompute(recompute);
  shape_ = {.schedule = pipeline_schedule(config, plan),
            .num_replicas = static_cast<int>(plan.dp),
            .num_leaves = config.parallel.is_asynchronous() ? 0 : static_cast<int>(plan.leaves),
            .recompute = {by_stages}};
  for (const LaneStage& stage : groups_.stages()) shape_.replicas.push_back(stage.replicas);
  const int num_stages = shape_.schedule.num_stages();
  partition_ = pipeline_split(config, num_stages);
  if (partition_.empty()) {
    PartitionProblem problem{.num_stages = num_stages, .costs = model_->layer_costs()};
    for (const LaneStage& stage : groups_.stages()) problem.speeds.push_back(stage.replicas * stage.tp);
    partition_ = partition_over_ranks(problem, shape_.schedule.rank_of_stage);
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    const LayerRange range = partition_[static_cast<size_t>(stage)];
    rank_of_layer_.insert(rank_of_layer_.end(), static_cast<size_t>(range.last - range.first),
                          shape_.schedule.rank_of_stage[static_cast<size_t>(stage)]);
  }
}

/// Of the whole model, while it is whole.
void ModelPart::list_weights() {
  const std::map<const void*, int> layer_of = layers_of_parameters(*model_);
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const int layer = layer_of.at(item.value().unsafeGetTensorImpl());
    weights_.push_back({item.key(), item.value().sizes().vec(), rank_of_layer_[static_cast<size_t>(layer)], -1});
  }
  for (const SharedUse& shared : model_->shared_uses()) {
    const auto weight = std::find_if(weights_.begin(), weights_.end(),
                                     [&](const Weight& each) { return each.name == shared.parameter; });
    if (weight == weights_.end()) throw Error(fmt::format("{} is shared, but no parameter", shared.parameter));
    shared_.push_back({.name = shared.parameter, .use = rank_of_layer_[shared.layer], .owner = weight->owner});
  }
}

/// Parameters become mesh tensors, and copies of those that others own.
void ModelPart::distribute_parameters(const Config& config) {
  if (!groups_.tensor_mesh()) return;
  const LayoutRules rules = tensor_parallel_rules(config.model, groups_.tp);
  const auto distribute_one = [&](const std::string& name, torch::Tensor parameter) {
    const auto& mesh = groups_.tensor_mesh();
    const std::vector<int64_t> sizes = parameter.sizes().vec();
    const MeshLayout* layout = mesh->layout(placements_for(name, rules, mesh->mesh()), sizes);
    const auto part = local_sizes(sizes, layout->placements, mesh->axis_sizes(), mesh->coordinates());
    const auto options = parameter.options().requires_grad(false);
    parameter.set_data(wrap_local(without_memory(part, options), mesh, layout, sizes));
  };
  const auto parameters = model_->named_parameters();
  for (const auto& item : parameters) distribute_one(item.key(), item.value());
  for (const SharedUse& shared : model_->shared_uses()) {
    if (!parameters.contains(shared.parameter)) distribute_one(shared.parameter, *shared.use);
  }
}

/// What has gradients in each stage of this rank, in the order of the layers; second uses last.
std::vector<std::vector<GradientSource>> ModelPart::list_sources() {
  const bool in_pipeline = groups_.pp > 1;
  for (int number = 0; number < static_cast<int>(partition_.size()); ++number) {
    const LayerRange range = partition_[static_cast<size_t>(number)];
    if (rank_of_layer_[static_cast<size_t>(range.first)] != groups_.pipeline_rank) continue;
    stages_.push_back({in_pipeline ? number : -1, range, nullptr, nullptr,
                       model_->statistics(static_cast<size_t>(range.first), static_cast<size_t>(range.last))});
  }
  const auto stage_of = [&](int layer) {
    return static_cast<size_t>(
        std::find_if(stages_.begin(), stages_.end(), [&](const StagePart& s) { return layer < s.layers.last; }) -
        stages_.begin());
  };
  const auto is_twice = [&](const std::string& name) {
    return std::any_of(shared_.begin(), shared_.end(), [&](const Shared& each) { return each.name == name; });
  };
  const std::map<const void*, int> layer_of = layers_of_parameters(*model_);
  std::vector<std::vector<GradientSource>> sources(stages_.size());
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const int layer = layer_of.at(item.value().unsafeGetTensorImpl());
    const size_t stage = stage_of(layer);
    for (Shared& shared : shared_) {
      if (shared.name == item.key()) shared.of_owner = {stage, sources[stage].size()};
    }
    sources[stage].push_back(
        {item.key(), item.value(), zero_ > 0 && item.value().dim() >= 2, is_twice(item.key()), layer});
  }
  const std::vector<SharedUse> uses = model_->shared_uses();
  for (size_t i = 0; i < shared_.size(); ++i) {
    Shared& shared = shared_[i];
    if (shared.use != groups_.pipeline_rank) continue;
    shared.leaf = *uses[i].use;
    if (shared.owner == shared.use)
      shared.leaf.set_data(sources[shared.of_owner.stage][shared.of_owner.number].leaf.detach());
    const auto layer = static_cast<int>(uses[i].layer);
    const size_t stage = stage_of(layer);
    shared.of_use = {stage, sources[stage].size()};
    sources[stage].push_back({shared.name + " (second use)", shared.leaf, zero_ > 0, true, layer});
  }
  return sources;
}

void ModelPart::make_stores(const Config& config, const BatchPlan& plan, torch::ScalarType compute_type) {
  std::vector<std::vector<GradientSource>> sources = list_sources();
  const Program sketch = groups_.pp > 1 ? lower_pipeline(shape_, groups_.pipeline_rank, groups_.replica)
                                        : lower_data_parallel(data_parallel_shape(plan, 1), groups_.replica);
  GradientStoreOptions store;
  store.num_slots = sketch.num_slots;
  store.num_shared_slots = sketch.across.direct ? 1 : sketch.num_slots;
  if (accumulation_ == 1) store.type = travel_type_;  // sums need float32, copies do not
  if (zero_ > 0) {
    store.num_shares = groups_.sharers()->size();
    store.own_share = groups_.sharers()->rank();
    store.by_unit = zero_ == 3;
    // A worker alone sums nothing with others, and its share is the whole.
    store.keeps_whole =
        zero_ == 1 || groups_.dp == 1 || (accumulation_ > 1 && config.parallel.zero_accumulation == "whole");
  }
  double bytes = config.parallel.bucket_mb * (1 << 20);
  if (bytes == 0) {
    int64_t elements = 0;
    for (const auto& of_stage : sources) {
      for (const GradientSource& source : of_stage) elements += local_part(source.leaf).numel();
    }
    const bool keeps_whole = zero_ < 3 && store.keeps_whole;
    bytes = derived_group_bytes(keeps_whole,
                                static_cast<double>(elements) * static_cast<double>(c10::elementSize(store.type)));
  }
  store.group_bytes = static_cast<int64_t>(bytes);
  store.first_group_bytes = std::min<int64_t>(store.group_bytes, 1 << 20);

  std::vector<ParameterGroups> groups;
  for (const auto& of_stage : sources) {
    std::vector<ParameterGroups::Item> items;
    for (const GradientSource& source : of_stage) items.push_back({source.name, source.leaf});
    groups.push_back({std::move(items), layout_of(of_stage, store)});
  }
  for (const Shared& shared : shared_) {
    if (shared.use != groups_.pipeline_rank) continue;
    ParameterGroups::Item& item = groups[shared.of_use.stage].items[shared.of_use.number];
    const bool is_copy = zero_ > 0 && shared.owner != groups_.pipeline_rank;
    item = {shared.name, is_copy ? shared.leaf : torch::Tensor(), false};
  }
  const auto value = [&](const std::string& name, const torch::Tensor& parameter) {
    return initial_part(name, parameter);
  };
  const bool updates_on_host = !config.parallel.offload.empty() || config.parallel.aggregation == "server";
  parameters_ = std::make_unique<ParameterStore>(
      std::move(groups), compute_type,
      ParameterSharing{.sharers = groups_.sharers(),
                       .frees = zero_ == 3,
                       .offload = config.parallel.offload == "memory" ? "" : config.parallel.offload,
                       .masters_on_host = device_.is_cuda() && updates_on_host,
                       .format = format_named(config.compression.gather),
                       .at_once = keeps_weights_,
                       .weights_elsewhere = config.parallel.offload_weights},
      value);
  for (Shared& shared : shared_) {
    if (shared.use != groups_.pipeline_rank) continue;
    if (shared.owner == shared.use) {
      const auto entry = static_cast<size_t>(parameters_->find(shared.name));
      shared.leaf.set_data(parameters_->entries()[entry].parameter.detach());
    } else if (zero_ == 0) {
      const torch::Tensor part = initial_part(shared.name, shared.leaf).to(compute_type);
      const MeshSpec* spec = mesh_spec(shared.leaf);
      shared.leaf.set_data(spec ? wrap_local(part, spec->mesh, spec->layout, shared.leaf.sizes()) : part);
    }
  }
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i].gradients = std::make_unique<GradientStore>(groups_.replicas(), std::move(sources[i]), store);
  }
}

/// Which groups each layer needs.
void ModelPart::make_layer_weights() {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    StagePart& part = stages_[stage];
    std::vector<std::set<LayerWeights::Group>> needed(static_cast<size_t>(part.layers.last - part.layers.first));
    const auto need = [&](int layer, size_t of_stage, size_t source) {
      const GradientStore& store = *stages_[of_stage].gradients;
      if (!store.sources()[source].shared) return;
      needed[static_cast<size_t>(layer - part.layers.first)].insert({of_stage, store.group_of(source)});
    };
    const std::vector<GradientSource>& sources = part.gradients->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto second = std::find_if(shared_.begin(), shared_.end(), [&](const Shared& each) {
        return each.leaf.defined() && each.of_use.stage == stage && each.of_use.number == i;
      });
      const bool lies_elsewhere = second != shared_.end() && second->owner == second->use;
      need(sources[i].unit, lies_elsewhere ? second->of_owner.stage : stage,
           lies_elsewhere ? second->of_owner.number : i);
    }
    std::vector<std::vector<LayerWeights::Group>> groups;
    for (const auto& of_layer : needed) groups.emplace_back(of_layer.begin(), of_layer.end());
    part.weights = std::make_unique<LayerWeights>(*parameters_, stage, static_cast<size_t>(part.layers.first),
                                                  std::move(groups), keeps_weights_);
  }
  const auto at = [this](size_t layer) {
    return std::find_if(stages_.begin(), stages_.end(),
                        [&](const StagePart& stage) { return static_cast<int>(layer) < stage.layers.last; })
        ->weights.get();
  };
  model_->set_layer_hooks({[at](size_t layer) { at(layer)->before(layer); },
                           [at](size_t layer, const torch::Tensor& output) { at(layer)->after(layer, output); }});
}

Program ModelPart::program(const BatchPlan& plan, CheckReport* report) const {
  // Of each stage: its groups, and how many of them replicas share.
  const size_t num_stages = partition_.size();
  std::vector<int32_t> groups(2 * num_stages, 0);
  for (const StagePart& stage : stages_) {
    const auto number = static_cast<size_t>(std::max(stage.number, 0));
    groups[number] = stage.gradients->num_groups() + 1;
    for (int group = 0; group < stage.gradients->num_groups(); ++group) {
      groups[num_stages + number] += stage.gradients->is_shared(group);
    }
  }
  if (groups_.pp > 1) groups_.sum_over_stages(groups);
  const auto shared = groups.begin() + static_cast<std::ptrdiff_t>(num_stages);

  std::vector<Program> programs;
  int num_leaves = 0;
  if (groups_.pp == 1) {
    const DataParallelShape shape = data_parallel_shape(plan, groups[0]);
    programs = lower_data_parallel_all(shape);
    num_leaves = shape.num_leaves;
  } else {
    PipelineShape shape = shape_;
    shape.groups.assign(groups.begin(), shared);
    programs = lower_pipeline_all(shape);
    num_leaves = shape.leaves();
  }
  if (std::any_of(shared, groups.end(), [](int32_t count) { return count > 0; })) {
    for (Program& program : programs) {
      ZeroShape zero = zero_asked_;
      zero.shared_groups.assign(shared, groups.end());
      zero.each_micro_batch &= program.num_ranks > 1;
      program = share_over_replicas(std::move(program), zero);
    }
  }
  return checked_program(std::move(programs), num_leaves, groups_.pipeline_rank, groups_.replica, report);
}

int64_t ModelPart::num_parameters() const {
  int64_t sum = 0;
  for (const Weight& weight : weights_) sum += c10::multiply_integers(weight.sizes);
  return sum;
}

bool ModelPart::has_first() const { return is_first(stages_.front()); }
bool ModelPart::has_last() const { return is_last(stages_.back()); }

torch::Tensor ModelPart::gradient(size_t number) const {
  const ParameterStore::Share& share = parameters_->shares()[number];
  const GradientStore& store = *stages_[share.stage].gradients;
  const torch::Tensor whole = store.is_shared(share.group) ? store.share(share.group) : store.group(0, share.group);
  return whole.narrow(0, share.at, share.count);
}

int ModelPart::group_of(const Source& source) const { return stages_[source.stage].gradients->group_of(source.number); }

/// The sum, or this rank's part of it.
torch::Tensor ModelPart::gradient_of(const Source& source) const {
  const GradientStore& store = *stages_[source.stage].gradients;
  const int group = group_of(source);
  return store.is_shared(group) ? store.share(group) : store.gradient(0, source.number);
}

void ModelPart::send(const torch::Tensor& tensor, int to) const {
  send_tensor(*groups_.pipeline(), tensor.to(device_), to);
}

void ModelPart::receive(const torch::Tensor& tensor, int from) const {
  tensor.copy_(receive_tensor(*groups_.pipeline(), from, device_));
}

void ModelPart::add_shared_gradients() const {
  if (lane_messages_) return add_shared_gradients_over_lanes();
  const torch::NoGradGuard no_grad;
  for (const Shared& shared : shared_) {
    const bool used = shared.use == groups_.pipeline_rank, owned = shared.owner == groups_.pipeline_rank;
    if (owned && used) {
      gradient_of(shared.of_owner).add_(gradient_of(shared.of_use));
    } else if (used) {
      send(gradient_of(shared.of_use), shared.owner);
    } else if (owned) {
      gradient_of(shared.of_owner).add_(receive_tensor(*groups_.pipeline(), shared.use, device_));
    }
  }
}

void ModelPart::share_weights() const {
  if (lane_messages_) return share_weights_over_lanes();
  const torch::NoGradGuard no_grad;
  for (const Shared& shared : shared_) {
    if (shared.use == shared.owner) continue;
    const bool used = shared.use == groups_.pipeline_rank, owned = shared.owner == groups_.pipeline_rank;
    if (zero_ == 0) {
      const int entry = parameters_->find(shared.name);
      if (owned) send(local_part(parameters_->entries()[static_cast<size_t>(entry)].parameter), shared.use);
      if (used) receive(local_part(shared.leaf), shared.owner);
      continue;
    }
    if (owned) send(parameters_->own_part(shared.of_owner.stage, shared.of_owner.number), shared.use);
    if (!used) continue;
    receive(parameters_->own_part(shared.of_use.stage, shared.of_use.number), shared.owner);
    parameters_->mark_stale(shared.of_use.stage, group_of(shared.of_use));
  }
}

torch::Tensor ModelPart::forward(const StagePart& stage, const torch::Tensor& x, int64_t seq,
                                 const torch::Tensor& target) const {
  const auto first = static_cast<size_t>(stage.layers.first), last = static_cast<size_t>(stage.layers.last);
  const auto& mesh = groups_.tensor_mesh();
  // How activations lie between stages, whatever the layers around would like.
  const auto between = [&](const torch::Tensor& y) {
    const bool along_sequence = mesh->sequence_parallel() && y.dim() == 3;
    return std::vector<Placement>{along_sequence ? Placement::shard(1) : Placement::replicate()};
  };
  torch::Tensor y = x;
  if (mesh && !is_first(stage)) {
    std::vector<int64_t> sizes = x.sizes().vec();
    if (between(x)[0].is_shard()) sizes[1] = seq;
    y = from_local(x, mesh, between(x), sizes);
  }
  if (is_last(stage) && target.defined()) return model_->forward_loss(y, target, first);
  y = model_->forward_layers(y, first, last);
  return mesh && !is_last(stage) && is_mesh_tensor(y) ? local(redistribute(y, between(y))) : y;
}

torch::Tensor ModelPart::predict(const torch::Tensor& input, int64_t seq, int lane) const {
  if (lane_messages_) {
    const StagePart& stage = stages_.front();
    const torch::Tensor x = is_first(stage) ? input.to(device_) : lane_messages_->receive_on(lane);
    const torch::Tensor y = forward(stage, x, seq);
    if (is_last(stage)) return full(y);
    lane_messages_->send_on(y, lane, seq);
    return {};
  }
  const auto rank_of = [&](int stage) { return shape_.schedule.rank_of_stage[static_cast<size_t>(stage)]; };
  torch::Tensor x;
  for (const StagePart& stage : stages_) {
    if (is_first(stage)) {
      x = input.to(device_);
    } else if (rank_of(stage.number - 1) != groups_.pipeline_rank) {
      x = receive_tensor(*groups_.pipeline(), rank_of(stage.number - 1), device_);
    }
    x = forward(stage, x, seq);
    if (is_last(stage)) return full(x);
    if (rank_of(stage.number + 1) != groups_.pipeline_rank) send(x, rank_of(stage.number + 1));
  }
  return {};
}

}  // namespace trireme
