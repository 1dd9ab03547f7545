#include "trireme/train/model_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/parallel/tensor/recipes.h"
#include "trireme/program/check.h"
#include "trireme/program/data_parallel.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr int kMostChecked = 64;  // ranks: the checker's work grows with ranks times leaves

DataParallelShape data_parallel_shape(const BatchPlan& plan, int num_groups) {
  return {static_cast<int>(plan.num_micro_batches), static_cast<int>(plan.leaves), static_cast<int>(plan.dp),
          num_groups};
}

Schedule schedule_of(const ParallelConfig& parallel, const BatchPlan& plan) {
  const bool interleaves = parallel.interleave > 1 && parallel.schedule == "1f1b";
  return make_schedule({.kind = schedule_kind(interleaves ? "interleaved" : parallel.schedule),
                        .num_ranks = static_cast<int>(parallel.pp),
                        .num_micro_batches = static_cast<int>(plan.accumulation),
                        .interleave = parallel.interleave > 1 ? static_cast<int>(parallel.interleave) : 0,
                        .update_every = static_cast<int>(parallel.update_every)});
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

ModelPart::ModelPart(const Config& config, const BatchPlan& plan, const RankGroups& groups, const torch::Device& device,
                     torch::ScalarType compute_type)
    : groups_(groups),
      device_(device),
      travel_type_(config.precision.gradients == "compute" ? compute_type : torch::kFloat32),
      model_(build_model(config.model)) {
  cut(config, plan);
  list_weights();
  if (groups.pp > 1) {
    std::vector<bool> kept;
    for (const int rank : rank_of_layer_) kept.push_back(rank == groups.pipeline_rank);
    model_->keep_layers(kept);
  }
  initialize(*model_, static_cast<uint64_t>(config.train.seed));
  if (device.is_cuda()) model_->to(device);
  distribute_parameters(config);
  parameters_ = std::make_unique<ParameterStore>(*model_, compute_type);
  for (Weight& weight : weights_) weight.entry = parameters_->find(weight.name);
  make_stores(config, plan);
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
  shape_ = {.schedule = schedule_of(config.parallel, plan),
            .num_replicas = groups_.dp,
            .num_leaves = config.parallel.is_asynchronous() ? 0 : static_cast<int>(plan.leaves),
            .recompute = {by_stages}};
  const int num_stages = shape_.schedule.num_stages();
  const std::string& split = config.parallel.split;
  partition_ = split.empty() ? partition_over_ranks({.num_stages = num_stages, .costs = model_->layer_costs()},
                                                    shape_.schedule.rank_of_stage)
                             : partition_from_text(split, num_layers);
  if (static_cast<int>(partition_.size()) != num_stages) {
    throw UsageError(fmt::format("parallel.split = {} has {} stages, and {} on {} ranks has {}", split,
                                 partition_.size(), config.parallel.schedule, groups_.pp, num_stages),
                     fmt::format("name the layers of {} stages, of 0 to {}", num_stages, num_layers - 1));
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
    parameter.set_data(distribute(parameter, mesh, placements_for(name, rules, mesh->mesh())));
  };
  const auto parameters = model_->named_parameters();
  for (const auto& item : parameters) distribute_one(item.key(), item.value());
  for (const SharedUse& shared : model_->shared_uses()) {
    if (!parameters.contains(shared.parameter)) distribute_one(shared.parameter, *shared.use);
  }
}

void ModelPart::make_stores(const Config& config, const BatchPlan& plan) {
  const bool in_pipeline = groups_.pp > 1;
  for (int number = 0; number < static_cast<int>(partition_.size()); ++number) {
    const LayerRange range = partition_[static_cast<size_t>(number)];
    if (rank_of_layer_[static_cast<size_t>(range.first)] != groups_.pipeline_rank) continue;
    stages_.push_back({in_pipeline ? number : -1, range, nullptr,
                       model_->statistics(static_cast<size_t>(range.first), static_cast<size_t>(range.last))});
  }
  const auto stage_of = [&](int layer) {
    return static_cast<size_t>(
        std::find_if(stages_.begin(), stages_.end(), [&](const StagePart& s) { return layer < s.layers.last; }) -
        stages_.begin());
  };
  const std::map<const void*, int> layer_of = layers_of_parameters(*model_);
  std::vector<std::vector<GradientSource>> sources(stages_.size());
  for (const ParameterStore::Entry& entry : parameters_->entries()) {
    const size_t stage = stage_of(layer_of.at(entry.parameter.unsafeGetTensorImpl()));
    source_of_entry_.emplace_back(stage, sources[stage].size());
    sources[stage].push_back({entry.name, entry.parameter});
  }
  const std::vector<SharedUse> uses = model_->shared_uses();
  for (size_t i = 0; i < shared_.size(); ++i) {
    Shared& shared = shared_[i];
    shared.entry = parameters_->find(shared.name);
    if (shared.use != groups_.pipeline_rank) continue;
    torch::Tensor& leaf = *uses[i].use;
    leaf.set_data(shared.entry >= 0 ? parameters_->entries()[static_cast<size_t>(shared.entry)].parameter.detach()
                                    : leaf.detach().to(device_, parameters_->compute_type()));
    shared.leaf = leaf;
    shared.stage = stage_of(static_cast<int>(uses[i].layer));
    shared.source = sources[shared.stage].size();
    sources[shared.stage].push_back({shared.name + " (second use)", leaf});
  }

  const Program sketch = in_pipeline ? lower_pipeline(shape_, groups_.pipeline_rank, groups_.replica)
                                     : lower_data_parallel(data_parallel_shape(plan, 1), groups_.replica);
  GradientStoreOptions store;
  store.num_slots = sketch.num_slots;
  store.num_shared_slots = sketch.across.direct ? 1 : sketch.num_slots;
  store.group_bytes = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20));
  store.first_group_bytes = std::min<int64_t>(store.group_bytes, 1 << 20);
  if (plan.accumulation == 1) store.type = travel_type_;  // sums need float32, copies do not
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i].gradients = std::make_unique<GradientStore>(groups_.replicas(), std::move(sources[i]), store);
  }
}

Program ModelPart::program(const BatchPlan& plan) const {
  if (groups_.pp == 1) {
    const DataParallelShape shape = data_parallel_shape(plan, stages_[0].gradients->num_groups() + 1);
    std::vector<Program> programs;
    for (int rank = 0; shape.num_ranks <= kMostChecked && rank < shape.num_ranks; ++rank) {
      programs.push_back(lower_data_parallel({shape.num_micro_batches, shape.num_leaves, shape.num_ranks, 1}, rank));
    }
    if (!programs.empty()) check_programs(programs, shape.num_leaves);  // groups are alike: one stands for all
    return lower_data_parallel(shape, groups_.replica);
  }
  std::vector<int32_t> groups(partition_.size(), 0);
  for (const StagePart& stage : stages_) {
    groups[static_cast<size_t>(stage.number)] = stage.gradients->num_groups() + 1;
  }
  groups_.pipeline()->all_reduce(groups);
  PipelineShape shape = shape_;
  if (groups_.dp * groups_.pp <= kMostChecked) check_programs(lower_pipeline_all(shape), shape.leaves());
  shape.groups.assign(groups.begin(), groups.end());
  return lower_pipeline(shape, groups_.pipeline_rank, groups_.replica);
}

int64_t ModelPart::num_parameters() const {
  int64_t sum = 0;
  for (const Weight& weight : weights_) sum += c10::multiply_integers(weight.sizes);
  return sum;
}

bool ModelPart::has_first() const { return is_first(stages_.front()); }
bool ModelPart::has_last() const { return is_last(stages_.back()); }

torch::Tensor ModelPart::gradient(size_t entry) const {
  const auto [stage, source] = source_of_entry_[entry];
  return stages_[stage].gradients->gradient(0, source);
}

size_t ModelPart::gradient_bytes() const {
  size_t sum = 0;
  for (const StagePart& stage : stages_) sum += stage.gradients->num_bytes();
  return sum;
}

void ModelPart::send(const torch::Tensor& tensor, int to) const { send_tensor(*groups_.pipeline(), tensor, to); }

void ModelPart::receive(const torch::Tensor& tensor, int from) const {
  tensor.copy_(receive_tensor(*groups_.pipeline(), from, device_));
}

void ModelPart::add_shared_gradients() const {
  const torch::NoGradGuard no_grad;
  for (const Shared& shared : shared_) {
    const bool used = shared.use == groups_.pipeline_rank, owned = shared.owner == groups_.pipeline_rank;
    const torch::Tensor of_use = used ? stages_[shared.stage].gradients->gradient(0, shared.source) : torch::Tensor();
    if (owned && used) {
      gradient(static_cast<size_t>(shared.entry)).add_(of_use);
    } else if (used) {
      send(of_use, shared.owner);
    } else if (owned) {
      gradient(static_cast<size_t>(shared.entry)).add_(receive_tensor(*groups_.pipeline(), shared.use, device_));
    }
  }
}

void ModelPart::share_weights() const {
  const torch::NoGradGuard no_grad;
  for (const Shared& shared : shared_) {
    if (shared.use == shared.owner) continue;
    if (shared.owner == groups_.pipeline_rank) {
      send(local_part(parameters_->entries()[static_cast<size_t>(shared.entry)].parameter), shared.use);
    }
    if (shared.use == groups_.pipeline_rank) receive(local_part(shared.leaf), shared.owner);
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

torch::Tensor ModelPart::predict(const torch::Tensor& input) const {
  const int64_t seq = input.dim() > 1 ? input.size(1) : 0;
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
