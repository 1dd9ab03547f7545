#include "trireme/parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/parallel/data/same_on_all_ranks.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

std::vector<torch::nn::AnyModule> layers_of(torch::nn::Sequential& model) {
  if (model.is_empty()) throw UsageError("a pipeline needs a model", "give it a torch::nn::Sequential with layers");
  return {model->begin(), model->end()};
}

double num_parameters(const torch::nn::AnyModule& layer) {
  double sum = 0;
  for (const torch::Tensor& parameter : layer.ptr()->parameters()) sum += static_cast<double>(parameter.numel());
  return sum;
}

}  // namespace

Pipeline::Pipeline(Communicator& comm, torch::nn::Sequential model, PipelineOptions options)
    : Pipeline(comm, layers_of(model), std::move(options)) {}

Pipeline::Pipeline(Communicator& comm, std::vector<torch::nn::AnyModule> layers, PipelineOptions options)
    : comm_(comm), options_(std::move(options)), layers_(std::move(layers)) {
  check_options();
  const int num_ranks = comm.size() / options_.num_replicas;
  pipeline_rank_ = comm.rank() % num_ranks;
  replica_ = comm.rank() / num_ranks;
  shape_.pipeline = {.schedule = make_schedule({.kind = schedule_kind(options_.schedule),
                                                .num_ranks = num_ranks,
                                                .num_micro_batches = options_.num_micro_batches,
                                                .interleave = options_.interleave,
                                                .update_every = options_.update_every}),
                     .num_replicas = options_.num_replicas,
                     .num_leaves = options_.num_leaves,
                     .recompute = options_.recompute};
  shape_.update.refreshes_first = true;
  cut();
  find_tied();
  refuse_tied();
  const int num_slots = program_of(shape_, pipeline_rank_, replica_).num_slots;
  check_same_everywhere();
  split_ranks();
  make_stages(num_slots);
  tie_weights();
  const auto sum = [this](std::vector<int32_t>& numbers) { along_->all_reduce(numbers); };
  steps_ = std::make_unique<StepEngine>(
      shape_, StepPlace{pipeline_rank_, replica_, sum}, stages_,
      ExecutorOptions{
          .replicas = replicas_.get(), .pipeline = along_.get(), .tied = tied_weights_.get(), .device = device_});
}

Pipeline::~Pipeline() {
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad().clone();
  }
}

void Pipeline::check_options() const {
  if (layers_.empty()) throw UsageError("a pipeline needs a model", "give it at least one layer");
  if (options_.num_replicas < 1 || comm_.size() % options_.num_replicas != 0) {
    throw UsageError(fmt::format("{} ranks cannot be {} replicas of a pipeline", comm_.size(), options_.num_replicas),
                     "let num_replicas divide the number of ranks");
  }
}

/// Layers into stages.
void Pipeline::cut() {
  const int num_layers = static_cast<int>(layers_.size()), num_stages = schedule().num_stages();
  if (!options_.split.empty()) {
    partition_ = partition_from_text(options_.split, num_layers);
    if (static_cast<int>(partition_.size()) != num_stages) {
      throw UsageError(fmt::format("the split {} has {} stages, and {} on {} ranks has {}", options_.split,
                                   partition_.size(), options_.schedule, schedule().num_ranks, num_stages));
    }
    return;
  }
  std::vector<double> costs = options_.costs;
  if (costs.empty()) {
    for (const torch::nn::AnyModule& layer : layers_) costs.push_back(num_parameters(layer));
  } else if (static_cast<int>(costs.size()) != num_layers) {
    throw UsageError(fmt::format("{} costs for {} layers", costs.size(), num_layers), "give one for each layer");
  }
  partition_ = trireme::partition({.num_stages = num_stages, .costs = costs});
}

void Pipeline::find_tied() {
  std::map<const void*, Tied> all;
  for (int stage = 0; stage < schedule().num_stages(); ++stage) {
    const std::vector<GradientSource> sources = sources_of(stage);
    for (size_t i = 0; i < sources.size(); ++i) {
      Tied& tied = all[sources[i].leaf.unsafeGetTensorImpl()];
      tied.leaf = sources[i].leaf;
      tied.uses.push_back({stage, i});
    }
  }
  for (auto& [leaf, tied] : all) {
    if (tied.uses.size() > 1) tied_.push_back(std::move(tied));
  }
  const auto before = [](const Tied& a, const Tied& b) {
    return std::pair(a.uses[0].stage, a.uses[0].source) < std::pair(b.uses[0].stage, b.uses[0].source);
  };
  std::sort(tied_.begin(), tied_.end(), before);  // the same on all ranks, unlike addresses
  for (const Tied& tied : tied_) {
    for (size_t use = 1; use < tied.uses.size(); ++use) {
      shape_.update.tied.push_back({tied.uses[0].stage, tied.uses[use].stage});
    }
  }
}

/// Their copies are refreshed once a step.
void Pipeline::refuse_tied() const {
  if (tied_.empty() || is_synchronous(schedule_kind(options_.schedule))) return;
  const Use& use = tied_[0].uses[0];
  throw UsageError(fmt::format("stages {} and {} share {}, and {} updates them at different moments", use.stage,
                               tied_[0].uses[1].stage, sources_of(use.stage)[use.source].name, options_.schedule),
                   "take a synchronous schedule, such as 1f1b, or cut the model so that one stage has both uses");
}

void Pipeline::tie_weights() {
  std::vector<TiedWeights::Tie> ties;
  for (const Tied& tied : tied_) {
    const Use& first = tied.uses[0];
    const auto sum_of = [this](const Use& use) { return stores_.at(use.stage)->gradient(0, use.source); };
    for (auto use = tied.uses.begin() + 1; use != tied.uses.end(); ++use) {
      TiedWeights::Tie& tie = ties.emplace_back(rank_of(first.stage), rank_of(use->stage));
      if (owns(first.stage)) {
        tie.owner = {[sum_of, first](const torch::Tensor& sum) { sum_of(first).add_(sum); },
                     [leaf = tied.leaf] { return leaf.detach(); }};
      }
      if (owns(use->stage)) {
        tie.use = {[sum_of, use = *use] { return sum_of(use); },
                   [leaf = tied.leaf](const torch::Tensor& weight) { leaf.copy_(weight); }};
      }
    }
  }
  tied_weights_ = std::make_unique<TiedWeights>(std::move(ties), along_.get(), nullptr, device_);
}

void Pipeline::check_same_everywhere() const {
  const PipelineOptions& o = options_;
  std::vector<std::string> lines{fmt::format(
      "schedule {}, {} micro-batches, {} replicas, interleave {}, update every {}, stages {}, {} leaves, average {}, "
      "groups of {} MiB, seed {}",
      o.schedule, o.num_micro_batches, o.num_replicas, o.interleave, o.update_every, partition_to_text(partition_),
      o.num_leaves, o.average, o.bucket_mb, o.seed)};
  for (const bool again : o.recompute) lines.push_back(fmt::format("recompute {}", again));
  for (int stage = 0; stage < schedule().num_stages(); ++stage) {
    for (const GradientSource& source : sources_of(stage)) lines.push_back(describe(source.name, source.leaf));
  }
  check_same_on_all_ranks(comm_, "the pipeline", lines, "build the same model on every rank, with the same options");
}

void Pipeline::split_ranks() {
  for (const torch::nn::AnyModule& layer : layers_) {
    const auto parameters = layer.ptr()->parameters();
    if (parameters.empty()) continue;
    device_ = parameters[0].device();
    break;
  }
  along_ = comm_.split(replica_, pipeline_rank_);
  attach_device(*along_, device_);
  if (options_.num_replicas == 1) return;
  replicas_ = comm_.split(pipeline_rank_, replica_);
  attach_device(*replicas_, device_);
}

/// The parameters of a stage that are trained, each once.
std::vector<GradientSource> Pipeline::sources_of(int stage) const {
  const LayerRange range = partition_[static_cast<size_t>(stage)];
  std::vector<GradientSource> sources;
  std::map<const void*, bool> seen;
  for (int layer = range.first; layer < range.last; ++layer) {
    for (const auto& item : layers_[static_cast<size_t>(layer)].ptr()->named_parameters()) {
      const torch::Tensor& parameter = item.value();
      if (!parameter.requires_grad() || std::exchange(seen[parameter.unsafeGetTensorImpl()], true)) continue;
      sources.push_back({fmt::format("{}.{}", layer, item.key()), parameter});
      if (parameter.scalar_type() != sources[0].leaf.scalar_type()) {
        throw UsageError(
            fmt::format("{} is {} and {} is {}", sources[0].name, c10::toString(sources[0].leaf.scalar_type()),
                        sources.back().name, c10::toString(parameter.scalar_type())),
            "give the parameters of a stage one type");
      }
    }
  }
  return sources;
}

void Pipeline::make_stages(int num_slots) {
  const auto bytes = static_cast<int64_t>(options_.bucket_mb * (1 << 20));
  for (int stage = 0; stage < schedule().num_stages(); ++stage) {
    if (!owns(stage)) continue;
    const LayerRange range = partition_[static_cast<size_t>(stage)];
    Stage& made = stages_[stage];
    made.forward = [this, range](const Tensors& x, int micro_batch, const torch::Tensor&) {
      return Tensors{forward(range, x.empty() ? torch::Tensor() : x[0], micro_batch)};
    };
    for (int i = range.first; i < range.last; ++i) {
      for (const torch::Tensor& buffer : layers_[static_cast<size_t>(i)].ptr()->buffers()) {
        made.buffers.push_back(buffer);
        if (replicas_) broadcast(*replicas_, buffer);
      }
    }
    std::vector<GradientSource> sources = sources_of(stage);
    if (sources.empty()) continue;
    for (GradientSource& source : sources) {
      const auto tied =
          std::find_if(tied_.begin(), tied_.end(), [&](const Tied& each) { return each.leaf.is_same(source.leaf); });
      const bool is_owner = tied == tied_.end() || tied->uses[0].stage == stage;
      source.again = !is_owner;
      if (is_owner) parameters_.emplace_back(source.name, source.leaf);
      if (replicas_) broadcast(*replicas_, source.leaf.detach());
    }
    stores_[stage] = std::make_unique<GradientStore>(replicas_.get(), sources,
                                                     GradientStoreOptions{.num_slots = num_slots,
                                                                          .num_host_shared_slots = num_slots,
                                                                          .bucket_bytes = bytes,
                                                                          .first_bucket_bytes = bytes / 4,
                                                                          .type = sources[0].leaf.scalar_type()});
    made.store = stores_[stage].get();
  }
}

/// Micro-batches of a step count update by update, and in each replica by replica.
int Pipeline::own_number_of(int micro_batch) const {
  const int in_update = schedule().micro_batches_in_update();
  return micro_batch / (in_update * options_.num_replicas) * in_update + micro_batch % in_update;
}

torch::Tensor Pipeline::micro_batch_of(const char* what, const torch::Tensor& batch, int micro_batch) const {
  const int64_t count = options_.num_micro_batches;
  if (!batch.defined() || batch.dim() == 0) {
    throw UsageError(fmt::format("the {} of the batch is missing", what),
                     "give it to step() on the ranks of the first and the last stage");
  }
  if (batch.size(0) == 0 || batch.size(0) % count != 0) {
    throw UsageError(fmt::format("a batch of {} cannot be cut into {} micro-batches", batch.size(0), count),
                     "let num_micro_batches divide the batch");
  }
  const int64_t size = batch.size(0) / count;
  return batch.narrow(0, own_number_of(micro_batch) * size, size);
}

/// Of one stage; with the loss after the last.
torch::Tensor Pipeline::forward(LayerRange range, const torch::Tensor& x, int micro_batch) {
  const RandomScope random({options_.seed, num_steps_, static_cast<uint64_t>(micro_batch)});
  torch::Tensor y = x.defined() ? x : micro_batch_of("input", input_, micro_batch);
  for (int i = range.first; i < range.last; ++i) y = layers_[static_cast<size_t>(i)].forward<torch::Tensor>(y);
  if (range.last < static_cast<int>(layers_.size())) return y;
  const torch::Tensor value = (*loss_)(y, micro_batch_of("target", target_, micro_batch));
  if (!options_.average) {
    losses_[micro_batch] = value.detach();
    return value;
  }
  losses_[micro_batch] = value.detach() / (options_.num_micro_batches * options_.num_replicas);
  return value / (schedule().micro_batches_in_update() * options_.num_replicas);
}

double Pipeline::step(const torch::Tensor& input, const torch::Tensor& target, const Loss& loss, const Update& update) {
  if (!update && steps_->program().num_updates > 1) {
    throw UsageError(fmt::format("{} updates weights while micro-batches are under way, and step() got no update",
                                 options_.schedule),
                     "step(input, target, loss, [&] { optimizer.step(); })");
  }
  const int num_micro_batches = options_.num_micro_batches * options_.num_replicas;
  input_ = input;
  target_ = target;
  loss_ = &loss;
  losses_.clear();
  steps_->executor().set_step(num_steps_);
  steps_->step([&](const Instruction&) {
    give_gradients();
    if (update) run_update(update);
  });
  input_.reset();
  target_.reset();
  ++num_steps_;

  // Each replica's losses at their places, summed by everybody in the same order.
  std::vector<double> losses(static_cast<size_t>(num_micro_batches));
  for (const auto& [micro_batch, value] : losses_) losses[static_cast<size_t>(micro_batch)] = value.item<double>();
  comm_.all_reduce(Data(losses.data(), losses.size(), DataType::kDouble));
  double sum = 0;
  for (const double value : losses) sum += value;
  return sum;
}

void Pipeline::give_gradients() {
  for (const auto& [stage, store] : stores_) {
    const std::vector<GradientSource>& sources = store->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      if (!sources[i].again) sources[i].leaf.mutable_grad() = store->gradient(0, i);
    }
  }
}

/// Where micro-batches are under way, autograd would take a change of their weights for a mistake: it counts changes.
/// Each gets the weights of its forward pass back ([Note: Old weights]), so nothing has changed for it.
void Pipeline::run_update(const Update& update) {
  if (steps_->program().num_updates == 1) return update();
  std::vector<int64_t> versions;
  for (const auto& [name, parameter] : parameters_) versions.push_back(parameter._version());
  update();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i].second;
    c10::VariableVersion(torch::autograd::impl::version_counter(parameter)).set_version(versions[i]);
    parameter.mutable_grad().reset();
  }
}

std::vector<torch::Tensor> Pipeline::parameters() const {
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_) parameters.push_back(parameter);
  return parameters;
}

bool Pipeline::has_first_stage() const { return owns(0); }
bool Pipeline::has_last_stage() const { return owns(schedule().num_stages() - 1); }

}  // namespace trireme
