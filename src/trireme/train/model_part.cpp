#include "trireme/train/model_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/config/pipeline.h"
#include "trireme/layout/redistribution.h"
#include "trireme/program/zero.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

/// The layer of each parameter.
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

/// Refuses tensors that no layer has. No stage would own a parameter, and each stage would save a buffer.
void require_layers(const Model& model, const std::map<const void*, int>& layer_of_parameter, bool is_cut) {
  std::set<const void*> known;
  for (const auto& [parameter, layer] : layer_of_parameter) known.insert(parameter);
  for (const auto& layer : model.layers()) {
    for (const torch::Tensor& buffer : layer->buffers()) known.insert(buffer.unsafeGetTensorImpl());
  }
  const auto require = [&](const auto& named) {
    for (const auto& item : named) {
      if (known.contains(item.value().unsafeGetTensorImpl()) || !(is_cut || item.value().requires_grad())) continue;
      throw UsageError(fmt::format("{} belongs to no layer of the model", item.key()),
                       "register it in a layer; a tensor that only the loss needs is a plain member of the model");
    }
  };
  require(model.named_parameters());
  require(model.named_buffers());
}

}  // namespace

bool needs_samples(const Layout& layout, int pipeline_rank) {
  if (layout.pp == 1) return true;
  const std::vector<int> ranks = schedule_of(layout).rank_of_stage;
  return ranks.front() == pipeline_rank || ranks.back() == pipeline_rank;
}

ModelPart::ModelPart(std::shared_ptr<Model> model, const Config& config, const Layout& layout, const RankGroups& groups,
                     const torch::Device& device, torch::ScalarType compute_type)
    : groups_(groups),
      device_(device),
      seed_(static_cast<uint64_t>(config.train.seed)),
      zero_(groups.shard_group() ? layout.zero : 0),
      accumulation_(layout.accumulation() * groups.lanes),
      travel_type_(config.precision.gradients == GradientType::kCompute ? compute_type : torch::kFloat32),
      model_(std::move(model)),
      shape_(step_shape(layout)) {
  cut(config);
  list_weights();
  if (layout.is_asynchronous() && !tied_.empty()) {
    throw UsageError(
        fmt::format("{} is used twice, and an asynchronous schedule does not add the gradients of both uses",
                    tied_.front().name),
        "take a synchronous schedule, such as 1f1b, or do not tie the weights");
  }
  // Built-in rules may name parameters that some models of their kind do not have.
  if (groups.tensor_mesh() && model_->modules_of() == Model::Modules::kTorch) {
    require_matches(*model_, model_->tensor_parallel_rules(groups.tp));
  }
  model_->set_built_values_aside();
  if (groups.pp > 1) {
    std::vector<bool> kept;
    for (const int rank : rank_of_layer_) kept.push_back(rank == groups.pipeline_rank);
    model_->keep_layers(kept);
  }
  place_parameters();
  if (device.is_cuda()) model_->to(device);  // buffers, and parameters that are not trained
  distribute_parameters();
  hold(config, compute_type);
  if (!groups.layout().stages.empty()) make_lanes();
  make_tied_weights();
  model_->drop_built_values();
  for (Weight& weight : weights_) weight.entry = parameters().find(weight.name);
  if (zero_ == 0) return;
  model_->set_layer_hooks({[this](size_t layer) { held_->before(layer); },
                           [this](size_t layer, const Tensors& outputs) { held_->after(layer, outputs); }});
}

/// Moves parameters to their device, as shapes without memory; the store then gives them memory. So no rank ever
/// allocates more of a model than its part.
void ModelPart::place_parameters() {
  const auto place = [&](torch::Tensor parameter) {
    parameter.set_data(without_memory(parameter.sizes(), parameter.options().device(device_).requires_grad(false)));
  };
  for (torch::Tensor& parameter : model_->parameters()) {
    if (parameter.requires_grad()) place(parameter);
  }
  for (const TiedUse& tied : model_->tied_uses()) place(*tied.use);
}

torch::Tensor ModelPart::initial_part(const std::string& name, const torch::Tensor& parameter) const {
  return initial_values(*model_, name, parameter, seed_).to(device_);
}

/// Cuts layers into stages, and decides what is recomputed.
void ModelPart::cut(const Config& config) {
  const Recompute recompute = parse_recompute(config.train.recompute);
  const int num_layers = static_cast<int>(model_->layers().size());
  if (groups_.pp == 1) {
    model_->set_recompute(recompute);
    partition_ = {{0, num_layers}};
    rank_of_layer_.assign(static_cast<size_t>(num_layers), 0);
    return;
  }
  // A stage that is recomputed as a whole keeps only its input.
  if (!shape_.pipeline.recompute[0]) model_->set_recompute(recompute);
  const int num_stages = shape_.pipeline.schedule.num_stages();
  partition_ = pipeline_split(config, num_stages, num_layers);
  if (partition_.empty()) {
    PartitionProblem problem{.num_stages = num_stages, .costs = model_->layer_costs()};
    for (const StageDegrees& stage : groups_.layout().stages) {
      problem.speeds.push_back(static_cast<double>(stage.num_workers()));
    }
    partition_ = partition_over_ranks(problem, shape_.pipeline.schedule.rank_of_stage);
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    const LayerRange range = partition_[static_cast<size_t>(stage)];
    rank_of_layer_.insert(rank_of_layer_.end(), static_cast<size_t>(range.last - range.first),
                          shape_.pipeline.schedule.rank_of_stage[static_cast<size_t>(stage)]);
  }
}

/// Lists the weights and tied weights of the whole model, before layers are dropped.
void ModelPart::list_weights() {
  const std::map<const void*, int> layer_of = layers_of_parameters(*model_);
  require_layers(*model_, layer_of, groups_.pp > 1);
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const int layer = layer_of.at(item.value().unsafeGetTensorImpl());
    weights_.push_back({item.key(), item.value().sizes().vec(), rank_of_layer_[static_cast<size_t>(layer)], -1});
  }
  const auto stage_of = [&](int layer) {
    const auto stage = std::find_if(partition_.begin(), partition_.end(),
                                    [layer](const LayerRange& range) { return layer < range.last; });
    return groups_.pp == 1 ? -1 : static_cast<int>(stage - partition_.begin());
  };
  const auto parameters = model_->named_parameters();
  for (const TiedUse& tied : model_->tied_uses()) {
    const torch::Tensor* const owned = parameters.find(tied.parameter);
    if (!owned) throw Error(fmt::format("{} is used twice, but no parameter of the model", tied.parameter));
    const int owner = layer_of.at(owned->unsafeGetTensorImpl()), use = static_cast<int>(tied.layer);
    tied_.push_back({.name = tied.parameter,
                     .stages = {stage_of(owner), stage_of(use)},
                     .owner_rank = rank_of_layer_[at(owner)],
                     .use_rank = rank_of_layer_[at(use)]});
    shape_.update.tied.push_back(tied_.back().stages);
  }
}

/// Turns parameters, and copies of tied weights that other ranks own, into mesh tensors.
void ModelPart::distribute_parameters() {
  if (!groups_.tensor_mesh()) return;
  const LayoutRules rules = model_->tensor_parallel_rules(groups_.tp);
  const auto distribute_one = [&](const std::string& name, torch::Tensor parameter) {
    const auto& mesh = groups_.tensor_mesh();
    const std::vector<int64_t> sizes = parameter.sizes().vec();
    const MeshLayout* layout = mesh->layout(placements_for(name, rules, mesh->mesh()), sizes);
    const auto part = local_sizes(sizes, layout->placements, mesh->axis_sizes(), mesh->coordinates());
    const auto options = parameter.options().requires_grad(false);
    // A parameter that is not trained keeps its values; the store gives the others memory.
    const torch::Tensor own = parameter.requires_grad()
                                  ? without_memory(part, options)
                                  : local_part(distribute(parameter.detach(), mesh, layout->placements));
    parameter.set_data(wrap_local(own, mesh, layout, sizes));
  };
  const auto parameters = model_->named_parameters();
  for (const auto& item : parameters) distribute_one(item.key(), item.value());
  for (const TiedUse& tied : model_->tied_uses()) {
    if (!parameters.contains(tied.parameter)) distribute_one(tied.parameter, *tied.use);
  }
}

/// Gradient sources of each stage of this rank, in the order of the layers; second uses last.
std::vector<StageSources> ModelPart::list_sources() {
  std::vector<StageSources> stages;
  for (int number = 0; number < static_cast<int>(partition_.size()); ++number) {
    const LayerRange range = partition_[at(number)];
    if (rank_of_layer_[at(range.first)] != groups_.pipeline_rank) continue;
    stages.push_back({.number = groups_.pp > 1 ? number : -1, .layers = range});
    statistics_.push_back(model_->statistics(at(range.first), at(range.last)));
  }
  const auto stage_of = [&](int layer) {
    const auto found = std::find_if(stages.begin(), stages.end(),
                                    [layer](const StageSources& stage) { return layer < stage.layers.last; });
    return at(found - stages.begin());
  };
  const std::map<const void*, int> layer_of = layers_of_parameters(*model_);
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const int layer = layer_of.at(item.value().unsafeGetTensorImpl());
    const size_t stage = stage_of(layer);
    bool is_tied = false;
    for (TiedParameter& tied : tied_) {
      if (tied.name != item.key()) continue;
      is_tied = true;
      tied.owner = {stage, stages[stage].sources.size()};
    }
    stages[stage].sources.push_back({item.key(), item.value(), zero_ > 0 && item.value().dim() >= 2, is_tied, layer});
  }
  size_t next = 0;
  const std::vector<TiedUse> uses = model_->tied_uses();  // uses in layers of this rank
  for (TiedParameter& tied : tied_) {
    if (tied.use_rank != groups_.pipeline_rank) continue;
    const TiedUse& use = uses[next++];
    torch::Tensor leaf = *use.use;
    if (tied.is_local()) leaf.set_data(stages[tied.owner->stage].sources[tied.owner->source].leaf.detach());
    const auto layer = static_cast<int>(use.layer);
    const size_t stage = stage_of(layer);
    tied.use = {stage, stages[stage].sources.size()};
    stages[stage].sources.push_back({tied.name + " (second use)", leaf, zero_ > 0 && leaf.dim() >= 2, true, layer});
  }
  return stages;
}

GradientStoreOptions ModelPart::gradient_options(const Config& config, const std::vector<StageSources>& stages) const {
  const Program sketch = program_of(shape_, groups_.pipeline_rank, groups_.replica);
  GradientStoreOptions options;
  options.num_slots = sketch.num_slots;
  options.num_host_shared_slots = sketch.across.direct ? 1 : sketch.num_slots;
  if (accumulation_ == 1) options.type = travel_type_;  // without accumulation, gradients need not be float32
  if (zero_ > 0) {
    options.num_shards = groups_.shard_group()->size();
    options.own_shard = groups_.shard_group()->rank();
    options.by_unit = zero_ == 3;
    // A single worker sums nothing with others, and its shard is the whole.
    options.keeps_whole = zero_ == 1 || groups_.dp == 1 ||
                          (accumulation_ > 1 && config.parallel.zero_accumulation == ZeroAccumulation::kWhole);
  }
  double bytes = config.parallel.bucket_mb * (1 << 20);
  if (bytes == 0) {
    int64_t elements = 0;
    for (const StageSources& stage : stages) {
      for (const GradientSource& source : stage.sources) elements += local_part(source.leaf).numel();
    }
    const bool keeps_whole = zero_ < 3 && options.keeps_whole;
    bytes = derived_bucket_bytes(keeps_whole,
                                 static_cast<double>(elements) * static_cast<double>(c10::elementSize(options.type)));
  }
  options.bucket_bytes = static_cast<int64_t>(bytes);
  options.first_bucket_bytes = std::min<int64_t>(options.bucket_bytes, 1 << 20);
  return options;
}

void ModelPart::hold(const Config& config, torch::ScalarType compute_type) {
  std::vector<StageSources> stages = list_sources();
  const GradientStoreOptions gradients = gradient_options(config, stages);
  const bool updates_on_host = !config.parallel.offload.empty() || config.parallel.aggregation == Aggregation::kServer;
  FlatWeightsOptions weights{
      .compute_type = compute_type,
      .sharding = {.shard_group = groups_.shard_group(),
                   .frees = zero_ == 3,
                   .offload = config.parallel.offloads_to_memory() ? "" : config.parallel.offload,
                   .masters_on_host = device_.is_cuda() && updates_on_host,
                   .format = block_format(config.compression.gather),
                   .at_once = groups_.layout().zero_keep,
                   .weights_elsewhere = config.parallel.offload_weights},
      .value = [this](const std::string& name, const torch::Tensor& leaf) { return initial_part(name, leaf); }};
  held_ = std::make_unique<StageSet>(
      std::move(stages), std::move(tied_),
      StageSetOptions{.replicas = groups_.replicas(), .gradients = gradients, .weights = std::move(weights)});
}

std::unique_ptr<StageMessages> ModelPart::pass_messages(const Program& program, int64_t seq) const {
  if (groups_.pp == 1) return nullptr;
  if (!lane_messages_) return std::make_unique<AnyShapeMessages>(*groups_.pipeline(), device_);
  auto messages = std::make_unique<LaneMessages>(*groups_.between_stages(), groups_.layout(), groups_.replica_mesh(),
                                                 program, device_, /*any_shapes=*/true);
  messages->set_sequence(seq);
  return messages;
}

int64_t ModelPart::num_parameters() const {
  int64_t sum = 0;
  for (const Weight& weight : weights_) sum += c10::multiply_integers(weight.sizes);
  return sum;
}

bool ModelPart::has_first() const { return is_first(stages().front()); }
bool ModelPart::has_last() const { return is_last(stages().back()); }

void ModelPart::make_tied_weights() {
  tied_weights_ = lane_messages_ ? std::make_unique<TiedWeights>(routed_ties(), nullptr, lane_messages_.get(), device_)
                                 : std::make_unique<TiedWeights>(held_->ties(), groups_.pipeline(), nullptr, device_);
}

std::vector<WholeTensor> ModelPart::own_tensors() const {
  std::vector<WholeTensor> own;
  for (const Weight& weight : weights_) {
    const auto is_used = [&](const TiedParameter& each) { return each.name == weight.name && each.use; };
    if (weight.entry >= 0 || std::any_of(held_->tied().begin(), held_->tied().end(), is_used)) {
      own.push_back({weight.name, weight.sizes});
    }
  }
  return own;
}

Tensors ModelPart::forward(const StageSet::Stage& stage, const Tensors& x, int64_t seq, const Tensors& targets) const {
  const auto first = static_cast<size_t>(stage.layers.first), last = static_cast<size_t>(stage.layers.last);
  const auto& mesh = groups_.tensor_mesh();
  // Placements of activations between stages, whatever the layers there prefer.
  const auto between = [&](const torch::Tensor& y) {
    const bool along_sequence = mesh->sequence_parallel() && y.dim() == 3;
    return std::vector<Placement>{along_sequence ? Placement::shard(1) : Placement::replicate()};
  };
  Tensors y = x;
  if (mesh && !is_first(stage)) {
    for (torch::Tensor& each : y) {
      std::vector<int64_t> sizes = each.sizes().vec();
      if (between(each)[0].is_shard()) sizes[1] = seq;
      each = from_local(each, mesh, between(each), sizes);
    }
  }
  if (is_last(stage) && !targets.empty()) return {model_->forward_loss(std::move(y), targets, first)};
  y = model_->forward_layers(std::move(y), first, last);
  if (!mesh || is_last(stage)) return y;
  for (torch::Tensor& each : y) {
    if (is_mesh_tensor(each)) each = local(redistribute(each, between(each)));
  }
  return y;
}

}  // namespace trireme
