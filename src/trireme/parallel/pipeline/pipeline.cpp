#include "trireme/parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
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
  std::vector<StageSources> stages = list_sources();
  std::vector<TiedParameter> tied = find_tied(stages);
  for (const TiedParameter& each : tied) shape_.update.tied.push_back(each.stages);
  check_same_everywhere(stages);
  split_ranks();
  hold(std::move(stages), std::move(tied));
  const auto sum = [this](std::vector<int32_t>& numbers) { along_->all_reduce(numbers); };
  steps_ = std::make_unique<StepEngine>(
      shape_, StepPlace{pipeline_rank_, replica_, sum}, make_stages(),
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

/// Cuts the layers into stages.
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

/// Trained parameters of all stages. A parameter that several stages use is a source of each.
std::vector<StageSources> Pipeline::list_sources() const {
  std::vector<StageSources> stages;
  for (int stage = 0; stage < schedule().num_stages(); ++stage) {
    StageSources& made = stages.emplace_back(stage, partition_[at(stage)]);
    for (int layer = made.layers.first; layer < made.layers.last; ++layer) {
      add_sources(made.sources, *layers_[at(layer)].ptr(), fmt::format("{}.", layer), layer);
    }
    require_one_dtype(made.sources, "give the parameters of a stage one type");
  }
  return stages;
}

/// Every use of a parameter by a stage after its first one, in the order of owners: the same on all ranks.
std::vector<TiedParameter> Pipeline::find_tied(const std::vector<StageSources>& stages) const {
  std::vector<TiedParameter> tied;
  const auto use_in = [&](const StageSources& stage, const torch::Tensor& leaf) {
    const auto found = std::find_if(stage.sources.begin(), stage.sources.end(),
                                    [&](const GradientSource& each) { return each.leaf.is_same(leaf); });
    return found == stage.sources.end() ? std::nullopt : std::optional(at(found - stage.sources.begin()));
  };
  const auto is_used_before = [&](const StageSources& stage, const torch::Tensor& leaf) {
    return std::any_of(stages.data(), &stage, [&](const StageSources& each) { return use_in(each, leaf).has_value(); });
  };
  for (const StageSources& first : stages) {
    for (size_t source = 0; source < first.sources.size(); ++source) {
      const auto& [name, leaf] = std::tie(first.sources[source].name, first.sources[source].leaf);
      if (is_used_before(first, leaf)) continue;
      for (const StageSources* later = &first + 1; later != stages.data() + stages.size(); ++later) {
        const std::optional<size_t> use = use_in(*later, leaf);
        if (!use) continue;
        if (!is_synchronous(schedule_kind(options_.schedule))) {  // copies would be refreshed only once per step
          throw UsageError(
              fmt::format("stages {} and {} share {}, and {} updates them at different moments", first.number,
                          later->number, name, options_.schedule),
              "take a synchronous schedule, such as 1f1b, or cut the model so that one stage has both uses");
        }
        TiedParameter& each = tied.emplace_back(name, TiedWeight{first.number, later->number}, rank_of(first.number),
                                                rank_of(later->number));
        if (owns(first.number)) each.owner = {held_before(first.number), source};
        if (owns(later->number)) each.use = {held_before(later->number), *use};
      }
    }
  }
  return tied;
}

size_t Pipeline::held_before(int stage) const {
  const auto& ranks = schedule().rank_of_stage;
  return at(std::count(ranks.begin(), ranks.begin() + stage, pipeline_rank_));
}

void Pipeline::check_same_everywhere(const std::vector<StageSources>& stages) const {
  const PipelineOptions& o = options_;
  std::vector<std::string> lines{fmt::format(
      "schedule {}, {} micro-batches, {} replicas, interleave {}, update every {}, stages {}, {} leaves, average {}, "
      "groups of {} MiB, seed {}",
      o.schedule, o.num_micro_batches, o.num_replicas, o.interleave, o.update_every, partition_to_text(partition_),
      o.num_leaves, o.average, o.bucket_mb, o.seed)};
  for (const bool again : o.recompute) lines.push_back(fmt::format("recompute {}", again));
  for (const StageSources& stage : stages) {
    for (const GradientSource& source : stage.sources) lines.push_back(describe(source.name, source.leaf));
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

/// Makes this rank's stages, with the weights and buffers of the first replica, and lists the parameters that it
/// updates.
void Pipeline::hold(std::vector<StageSources> stages, std::vector<TiedParameter> tied) {
  std::erase_if(stages, [&](const StageSources& stage) { return !owns(stage.number); });
  for (const TiedParameter& each : tied) {
    if (each.use) stages[each.use->stage].sources[each.use->source].again = true;
  }
  for (const StageSources& stage : stages) {
    for (int layer = stage.layers.first; layer < stage.layers.last && replicas_; ++layer) {
      for (const torch::Tensor& buffer : layers_[at(layer)].ptr()->buffers()) broadcast(*replicas_, buffer);
    }
    for (const GradientSource& source : stage.sources) {
      if (!source.again) parameters_.emplace_back(source.name, source.leaf);
      if (replicas_) broadcast(*replicas_, source.leaf.detach());
    }
  }
  const int num_slots = program_of(shape_, pipeline_rank_, replica_).num_slots;
  const auto bytes = static_cast<int64_t>(options_.bucket_mb * (1 << 20));
  held_ = std::make_unique<StageSet>(std::move(stages), std::move(tied),
                                     StageSetOptions{.replicas = replicas_.get(),
                                                     .gradients = {.num_slots = num_slots,
                                                                   .num_host_shared_slots = num_slots,
                                                                   .bucket_bytes = bytes,
                                                                   .first_bucket_bytes = bytes / 4}});
  tied_weights_ = std::make_unique<TiedWeights>(held_->ties(), along_.get(), nullptr, device_);
}

std::map<int, Stage> Pipeline::make_stages() {
  std::map<int, Stage> stages;
  for (const StageSet::Stage& held : held_->stages()) {
    Stage& made = stages[held.number];
    made.store = held.gradients.get();
    made.forward = [this, range = held.layers](const Tensors& x, int micro_batch, const torch::Tensor&) {
      return Tensors{forward(range, x.empty() ? torch::Tensor() : x[0], micro_batch)};
    };
    for (int layer = held.layers.first; layer < held.layers.last; ++layer) {
      for (const torch::Tensor& buffer : layers_[at(layer)].ptr()->buffers()) made.buffers.push_back(buffer);
    }
  }
  return stages;
}

/// Micro-batches of a step are numbered update by update and, within each, replica by replica.
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
  return batch.narrow(0, micro_batch * size, size);
}

/// Computes one stage, and in the last one the loss.
torch::Tensor Pipeline::forward(LayerRange range, const torch::Tensor& x, int micro_batch) {
  const RandomScope random({options_.seed, num_steps_, static_cast<uint64_t>(micro_batch)});
  const int own = own_number_of(micro_batch);
  torch::Tensor y = x.defined() ? x : inputs_(own);
  for (int i = range.first; i < range.last; ++i) y = layers_[at(i)].forward<torch::Tensor>(y);
  if (range.last < static_cast<int>(layers_.size())) return y;
  const torch::Tensor value = (*loss_)(y, targets_(own));
  on_loss_(micro_batch, value.detach());
  return options_.average ? value / (schedule().micro_batches_in_update() * options_.num_replicas) : value;
}

double Pipeline::step(const torch::Tensor& input, const torch::Tensor& target, const Loss& loss, const Update& update) {
  if (!update && steps_->program().num_updates > 1) {
    throw UsageError(fmt::format("{} updates weights while micro-batches are under way, and step() got no update",
                                 options_.schedule),
                     "step(input, target, loss, [&] { optimizer.step(); })");
  }
  // Losses of all replicas, each at its place, so that every rank sums them in the same order.
  const int num_micro_batches = options_.num_micro_batches * options_.num_replicas;
  std::map<int, torch::Tensor> own_losses;
  inputs_ = [&](int64_t number) { return micro_batch_of("input", input, static_cast<int>(number)); };
  targets_ = [&](int64_t number) { return micro_batch_of("target", target, static_cast<int>(number)); };
  on_loss_ = [&](int micro_batch, const torch::Tensor& value) { own_losses[micro_batch] = value; };
  loss_ = &loss;
  steps_->executor().set_step(num_steps_);
  steps_->step([&](const Instruction&) {
    give_gradients();
    if (update) run_update(update);
  });
  ++num_steps_;
  std::vector<double> losses(at(num_micro_batches));
  const int divisor = options_.average ? num_micro_batches : 1;
  for (const auto& [micro_batch, value] : own_losses) losses[at(micro_batch)] = (value / divisor).item<double>();
  comm_.all_reduce(Data(losses.data(), losses.size(), DataType::kDouble));
  double sum = 0;
  for (const double value : losses) sum += value;
  return sum;
}

double Pipeline::stream(int64_t num_micro_batches, const Samples& inputs, const Samples& targets, const Loss& loss,
                        const Update& update) {
  const ScheduleShape shape{.kind = schedule_kind(options_.schedule),
                            .num_ranks = schedule().num_ranks,
                            .update_every = schedule().update_every};
  if (!update) {
    throw UsageError("stream() got no update", "stream(count, inputs, targets, loss, [&] { optimizer.step(); })");
  }
  if (num_micro_batches > INT32_MAX / options_.num_replicas) {
    throw UsageError(fmt::format("a stream cannot have {} micro-batches", num_micro_batches), "call it several times");
  }
  double sum = 0;
  int counted = 0;
  inputs_ = inputs;
  targets_ = targets;
  on_loss_ = [&](int micro_batch, const torch::Tensor& value) {
    if (own_number_of(micro_batch) < counted) return;  // recomputed
    sum += value.item<double>();
    ++counted;
  };
  loss_ = &loss;
  steps_->executor().set_step(num_steps_);
  steps_->stream(shape, static_cast<int>(num_micro_batches), [&](const Instruction&) {
    give_gradients();
    run_update(update);
  });
  ++num_steps_;
  comm_.all_reduce(Data(&sum, 1, DataType::kDouble));
  return options_.average ? sum / static_cast<double>(num_micro_batches * options_.num_replicas) : sum;
}

void Pipeline::give_gradients() {
  for (const StageSet::Stage& stage : held_->stages()) {
    const std::vector<GradientSource>& sources = stage.gradients->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      if (!sources[i].again) sources[i].leaf.mutable_grad() = stage.gradients->gradient(0, i);
    }
  }
}

/// While micro-batches are in flight, autograd would report a change of their weights as an error: it counts changes.
/// But each gets the weights of its forward pass back ([Note: Old weights]), so nothing has changed for it.
void Pipeline::run_update(const Update& update) {
  if (is_synchronous(schedule_kind(options_.schedule))) return update();
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
