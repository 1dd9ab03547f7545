#include "trireme/train/engine.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/built_in.h"
#include "trireme/models/functions.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/random_scope.h"
#include "trireme/train/compression.h"
#include "trireme/train/same_model.h"

namespace trireme {
namespace {

torch::ScalarType scalar_type_of(NumberType type) {
  return type == NumberType::kBfloat16  ? torch::kBFloat16
         : type == NumberType::kFloat16 ? torch::kFloat16
                                        : torch::kFloat32;
}

/// Runs operators in the compute type or in float32, following autocast's lists. Parameters are already in the compute
/// type, so none of them is cast or cached.
class Autocast {
 public:
  Autocast(const torch::Device& device, torch::ScalarType type) : device_(device.type()), on_(type != torch::kFloat32) {
    if (!on_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Autocast() {
    if (on_) at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;

 private:
  const torch::DeviceType device_;
  const bool on_;
};

/// Ignores the section [model] if the program passes a model of its own.
Config config_with(const Model& model, Config config) {
  if (config.model.is_own() || dynamic_cast<const BuiltInModel*>(&model)) return config;
  config.model = {};
  config.model.kind = ModelKind::kOwn;
  config.model.own_kind = name_of(ModelKind::kOwn);
  return config;
}

}  // namespace

Engine::Engine(World& world, std::shared_ptr<Model> model, const Config& given)
    : world_(world),
      config_(with_trainer_choices(config_with(*model, given))),
      layout_(check(config_, world.size())),
      device_(open_device(std::string(name_of(given.train.device)), world.local_rank())),
      compute_type_(scalar_type_of(given.precision.compute)),
      groups_(world, device_, layout_),
      loss_scale_(LossScale::of(given.precision)) {
  const Config& config = config_;
  torch::set_num_threads(static_cast<int>(config.train.threads));
  check_same_model(world.comm(), *model);
  ops::set_deterministic(config.train.deterministic);
  part_ = std::make_unique<ModelPart>(std::move(model), config, layout_, groups_, device_, compute_type_);
  if (config.model.sync_statistics && groups_.replicas() != nullptr) {
    set_sum_over_replicas(part_->model(), [this](torch::Tensor& sums) {
      groups_.replicas()->all_reduce(data_of(sums), ReduceOp::kSum, call_options(device_));
    });
  }
  StepPlace place{.pipeline_rank = groups_.pipeline_rank, .replica = groups_.replica};
  if (groups_.pp > 1) place.sum_over_stages = [this](auto& numbers) { groups_.sum_over_stages(numbers); };
  steps_ = std::make_unique<StepEngine>(part_->shape(), place, make_stages(),
                                        ExecutorOptions{.replicas = groups_.replicas(),
                                                        .pipeline = groups_.pipeline(),
                                                        .messages = part_->lane_messages(),
                                                        .shard_group = groups_.shard_group(),
                                                        .copies = groups_.copies(),
                                                        .tied = &part_->tied_weights(),
                                                        .device = device_,
                                                        .travel_type = part_->travel_type(),
                                                        .overlap = config.parallel.overlap == Overlap::kOn});
  Executor& executor = steps_->executor();
  executor.reducer().set_compressor(make_compressor(config, groups_.replicas(), executor.group_layouts(), device_));
  inputs_ = std::make_unique<StepInputs>(device_, micro_batches().size());
  if (config.model.takes_tokens()) seq_ = config.model.seq;
  policy_ = make_update_policy({world, config_, layout_, groups_, *part_, executor, std::ssize(micro_batches())});
  if (device_.is_cuda()) {
    device_scale_ = torch::ones({}, torch::TensorOptions().device(device_));
    if (config.precision.matmul == MatmulType::kFp8) fp8_ = std::make_unique<Fp8Products>(part_->model());
  }
}

Engine::~Engine() = default;

std::map<int, Stage> Engine::make_stages() {
  std::map<int, Stage> stages;
  for (const StageSet::Stage& part : part_->stages()) {
    Stage& stage = stages[part.number];
    stage.forward = [this, &part](const Tensors& x, int micro_batch, torch::Tensor values) {
      return forward(part, x, micro_batch, std::move(values));
    };
    stage.store = part.gradients.get();
    stage.weights = part.weights.get();
    stage.num_values = kNumValues;
    for (const Statistic& statistic : part_->statistics(part)) stage.num_values += statistic.running.numel();
  }
  return stages;
}

/// Whether `flag` is set on any rank of this model. Other replicas learn it along with the gradients.
bool Engine::agree(bool flag) {
  if (!groups_.model()) return flag;
  std::vector<int32_t> said = {flag ? 1 : 0};
  groups_.model()->all_reduce(said, ReduceOp::kMax);
  return said[0] != 0;
}

Tensors Engine::forward(const StageSet::Stage& stage, const Tensors& x, int micro_batch, torch::Tensor values) {
  const auto own = std::find(micro_batches().begin(), micro_batches().end(), micro_batch) - micro_batches().begin();
  const Inputs& inputs = inputs_->at(static_cast<size_t>(own));
  const RandomScope scope({static_cast<uint64_t>(config_.train.seed), static_cast<uint64_t>(steps_done_),
                           static_cast<uint64_t>(micro_batch)});
  const bool is_last = part_->is_last(stage);
  Tensors outputs;
  {
    const Autocast autocast(device_, compute_type_);
    outputs =
        part_->forward(stage, part_->is_first(stage) ? inputs.inputs : x, seq_, is_last ? inputs.targets : Tensors());
  }
  if (is_last && on_loss_) on_loss_(outputs[0]);
  {
    const torch::NoGradGuard no_grad;
    if (is_last && outputs[0].dim() == 0) {  // the executor refuses any other loss
      values[kLoss].copy_(outputs[0].detach());
    } else {
      values[kLoss].zero_();
    }
    values[kStop].fill_(stop_ ? 1 : 0);
    int64_t at = kNumValues;
    for (const Statistic& statistic : part_->statistics(stage)) {
      const int64_t count = statistic.running.numel();
      values.narrow(0, at, count).copy_(statistic.observed->detach().flatten());
      at += count;
    }
  }
  if (!is_last || compute_type_ != torch::kFloat16) return outputs;
  return {device_scale_.defined() ? outputs[0] * device_scale_ : outputs[0] * loss_scale_.scale};
}

StepReport Engine::step(const Inputs& batch, bool stop) {
  const auto start = Clock::now();
  const auto micro_batch_of = [&](Tensors tensors, int64_t number) {
    for (torch::Tensor& tensor : tensors) {
      if (tensor.dim() == 0 || tensor.size(0) != layout_.global_batch) {
        throw UsageError(fmt::format("a tensor of the batch is {}, and train.global_batch = {}",
                                     form_of(tensor).to_string(), layout_.global_batch),
                         "give the whole batch, its samples along dim 0");
      }
      tensor = tensor.narrow(0, number * layout_.micro_batch, layout_.micro_batch).contiguous();
    }
    return tensors;
  };
  if (part_->has_last()) require_targets(batch.targets.size());
  std::vector<Inputs> own;
  for (const int number : micro_batches()) {
    own.push_back({micro_batch_of(batch.inputs, number), micro_batch_of(batch.targets, number)});
  }
  inputs_->give(own);
  return run_step(stop, start);
}

StepReport Engine::run_step(bool stop, Clock::time_point start) {
  StepReport report;
  stop_ = agree(stop);
  world_.set_step(static_cast<uint64_t>(steps_done_));
  set_fault_step(static_cast<uint64_t>(steps_done_));
  steps_->executor().set_step(static_cast<uint64_t>(steps_done_));
  fault_point("train.step");
  part_->model().train();
  if (faults_armed()) {
    part_->stages()[0].gradients->on_gradient = [](size_t source, const torch::Tensor& gradient) {
      if (source == 0 && fault_errno("train.gradient") != 0) gradient.view(-1)[0] = std::nanf("");
    };
  }
  report.learning_rate = learning_rate(config_.optimizer, steps_done_, config_.train.steps, layout_.dp);
  if (device_scale_.defined() && compute_type_ == torch::kFloat16) device_scale_.fill_(loss_scale_.scale);
  policy_->begin({steps_done_, updates_done_, report.learning_rate, loss_scale_, stop_, own_tokens()});
  steps_->set_exchange(policy_->exchange());
  const Fp8Scope fp8(fp8_.get());
  report.times = policy_->launch([&] { return run_program(report); });
  inputs_->prefetch();
  if (const std::optional<StepEnd> end = policy_->finish()) conclude(*end, report);
  report.enqueue_s = policy_->enqueue_s();
  ++steps_done_;
  samples_done_ += layout_.global_batch;
  report.step = steps_done_;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

/// Tokens of this rank's micro-batches in the coming step; empty if the policy does not need them.
std::vector<torch::Tensor> Engine::own_tokens() const {
  std::vector<torch::Tensor> tokens;
  for (int64_t i = 0; policy_->needs_tokens() && i < std::ssize(micro_batches()); ++i) {
    tokens.push_back(inputs_->at(static_cast<size_t>(i)).inputs.at(0));
  }
  return tokens;
}

/// Runs the part of a step that a graph can capture: passes, sums and update.
StepTimes Engine::run_program(StepReport& report) {
  if (fp8_) fp8_->copy_weights();
  const StepTimes times = steps_->step([&](const Instruction& instruction) { run_update(instruction, report); });
  if (fp8_) update_fp8_scales();
  return times;
}

void Engine::run_update(const Instruction& instruction, StepReport& report) {
  switch (instruction.op) {
    case OpCode::kPush:
      return policy_->push(instruction.stage, instruction.group);
    case OpCode::kCombine:
      return policy_->combine();
    case OpCode::kNorm:
      return policy_->norm();
    case OpCode::kOptimizerStep:
      if (const std::optional<StepEnd> end = policy_->update(instruction.stage)) conclude(*end, report);
      return;
    case OpCode::kPull:
      return policy_->pull();
    case OpCode::kMeet:
      return policy_->meet();
    default:
      throw Error(fmt::format("{} is no instruction of an update", instruction.to_string()));
  }
}

/// Each rank records the largest values of its own samples; taking their maximum keeps the scales equal on all ranks.
void Engine::update_fp8_scales() {
  if (world_.size() == 1) return fp8_->update_scales();
  fp8_->update_scales([this](torch::Tensor& largest) {
    world_.comm().all_reduce(data_of(largest), ReduceOp::kMax, call_options(device_));
  });
}

/// After the update, or after it was skipped: updates counters, finds bad numbers, and takes the next loss scale.
void Engine::conclude(const StepEnd& end, StepReport& report) {
  report.loss = end.loss;
  report.gradient_norm = end.gradient_norm;
  report.stop_wanted = end.stop;
  report.skipped = !end.updates();
  loss_scale_ = end.loss_scale;
  if (end.is_bad()) {
    report.bad = blame(end);
    ++bad_steps_;
  }
  if (end.updates()) updates_done_ += num_updates();
}

void Engine::run_passes(int num_passes, int64_t seq, const std::function<Tensors(int64_t)>& inputs,
                        const std::function<void(int64_t, const Tensors&)>& told) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(device_, compute_type_);
  policy_->finish_pulls();
  part_->model().eval();
  const auto each = [](Tensors tensors, auto change) {
    for (torch::Tensor& tensor : tensors) tensor = change(tensor);
    return tensors;
  };
  const auto here = [&](const torch::Tensor& tensor) { return tensor.to(device_); };
  const auto whole = [](const torch::Tensor& tensor) { return full(tensor); };
  const auto messages = [&](const Program& program) { return part_->pass_messages(program, seq); };
  steps_->run_passes(num_passes, messages, [&](int number, const Tensors& x, int pass) {
    const StageSet::Stage& stage = part_->held().stage(number);
    Tensors outputs = part_->forward(stage, part_->is_first(stage) ? each(inputs(pass), here) : x, seq);
    if (!part_->is_last(stage)) return outputs;
    told(pass, each(std::move(outputs), whole));
    return Tensors();
  });
}

Tensors Engine::predict(const Tensors& given) {
  Tensors inputs = given, outputs;
  for (torch::Tensor& input : inputs) input = input.contiguous();
  const int64_t seq = seq_ > 0 ? inputs.at(0).size(1) : 0;
  run_passes(
      1, seq, [&](int64_t) { return inputs; }, [&](int64_t, const Tensors& made) { outputs = made; });
  if (groups_.pp == 1) return outputs;
  // Broadcasts the outputs of the last stage: first the shapes, then the tensors.
  const int last = part_->rank_of_last();
  const torch::Tensor numbers = part_->has_last() ? forms_to_numbers(forms_of(outputs)) : empty_forms();
  groups_.broadcast_from_stage(numbers, last);
  const TensorForms forms = forms_from_numbers(numbers);
  outputs.resize(forms.size());
  for (size_t i = 0; i < forms.size(); ++i) {
    outputs[i] = outputs[i].defined()
                     ? outputs[i].contiguous()
                     : torch::empty(forms[i].sizes, torch::TensorOptions().dtype(forms[i].type).device(device_));
    groups_.broadcast_from_stage(outputs[i], last);
  }
  return outputs;
}

}  // namespace trireme
