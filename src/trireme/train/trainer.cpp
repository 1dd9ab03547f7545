#include "trireme/train/trainer.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/functions.h"
#include "trireme/tensor/random_scope.h"
#include "trireme/train/compression.h"
#include "trireme/train/share_result.h"

namespace trireme {
namespace {

constexpr int64_t kWarmupSteps = 3;  // before a graph is captured: libraries choose their algorithms in them

torch::ScalarType scalar_type_of(const std::string& name) {
  return name == "bfloat16" ? torch::kBFloat16 : name == "float16" ? torch::kFloat16 : torch::kFloat32;
}

/// Operators run in the compute type or in float32, as autocast's lists have it. Parameters are in the compute type
/// already, so nothing of theirs is cast or cached.
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

}  // namespace

Trainer::Trainer(World& world, const Config& config, const OpenedData& data)
    : world_(world),
      config_(config),
      plan_(check(config, world.size())),
      data_(data),
      device_(open_device(config.train.device, world.local_rank())),
      compute_type_(scalar_type_of(config.precision.compute)),
      groups_(world, device_, config, plan_.dp),
      loss_scale_(LossScale::of(config.precision)) {
  torch::set_num_threads(static_cast<int>(config.train.threads));
  ops::set_deterministic(config.train.deterministic);
  part_ = std::make_unique<ModelPart>(config, plan_, groups_, device_, compute_type_);
  if (config.model.sync_statistics && groups_.replicas() != nullptr) {
    set_sum_over_replicas(part_->model(), [this](torch::Tensor& sums) {
      groups_.replicas()->all_reduce(data_of(sums), ReduceOp::kSum, call_options(device_));
    });
  }
  executor_ = std::make_unique<Executor>(part_->program(plan_), make_stages(),
                                         ExecutorOptions{.replicas = groups_.replicas(),
                                                         .pipeline = groups_.pipeline(),
                                                         .messages = part_->lane_messages(),
                                                         .sharers = groups_.sharers(),
                                                         .copies = groups_.copies(),
                                                         .device = device_,
                                                         .travel_type = part_->travel_type(),
                                                         .overlap = config.parallel.overlap});
  executor_->reducer().set_compressor(make_compressor(config, groups_.replicas(), executor_->group_layouts(), device_));
  if (config.parallel.aggregation == "server") {
    server_ = std::make_unique<ServerAggregation>(world, config_, plan_, groups_, *part_);
    executor_->reducer().set_sink([this](int group) { server_->push_group(group); });
  } else {
    optimizer_ = std::make_unique<Optimizer>(config.optimizer, part_->parameters());
    momentum_ = MomentumExchange::make(config_, groups_.replicas(), part_->parameters(), *optimizer_);
  }
  if (device_.is_cuda()) {
    const auto gradient = [this](size_t share) { return part_->gradient(share); };
    if (optimizer_ && !parameters().masters_on_host()) {
      device_update_ = std::make_unique<DeviceUpdate>(config.optimizer, config.train.clip, part_->parameters(),
                                                      *optimizer_, gradient);
    } else if (optimizer_) {
      host_gradients_ = std::make_unique<HostGradients>(parameters().shares().size(), gradient);
    }
    if (device_update_ && (groups_.model() || groups_.sharers())) {
      device_update_->set_norm_of_model([this] { return totals(0).norm; });
    }
    device_scale_ = torch::ones({}, torch::TensorOptions().device(device_));
    if (config.precision.matmul == "fp8") fp8_ = std::make_unique<Fp8Products>(part_->model());
    graph_ = std::make_unique<DeviceGraph>(device_);
  }
  micro_batches_ = list_micro_batches();
  const auto averaged = static_cast<double>(plan_.num_micro_batches / num_updates());
  gradient_factor_ = config.parallel.aggregation == "sum" ? 1 : 1.0 / averaged;
  sums_alone_ = groups_.replicas() && (config.local.method != "none" || config.parallel.aggregation == "adasum");
  if (sums_alone_) {
    executor_->reducer().set_sink([](int) {});
    gradient_factor_ = 1.0 / static_cast<double>(micro_batches_.size());
  }
  if (sums_alone_ && config.local.method != "none") {
    local_ = std::make_unique<LocalSteps>(config_, *groups_.replicas(), part_->parameters(), *optimizer_);
  } else if (sums_alone_) {
    adasum_ = std::make_unique<AdasumStep>(*part_, *groups_.replicas());
  }
  start_reading();
}

Trainer::~Trainer() = default;

std::map<int, Stage> Trainer::make_stages() {
  std::map<int, Stage> stages;
  for (const ModelPart::StagePart& part : part_->stages()) {
    Stage& stage = stages[part.number];
    stage.forward = [this, &part](const torch::Tensor& x, int micro_batch, torch::Tensor values) {
      return forward(part, x, micro_batch, std::move(values));
    };
    stage.store = part.gradients.get();
    stage.weights = part.weights.get();
    stage.num_values = kNumValues;
    for (const Statistic& statistic : part.statistics) stage.num_values += statistic.running.numel();
  }
  return stages;
}

/// Whether any rank of this model says so. Replicas learn it with their gradients.
bool Trainer::agree(bool flag) {
  if (!groups_.model()) return flag;
  std::vector<int32_t> said = {flag ? 1 : 0};
  groups_.model()->all_reduce(said, ReduceOp::kMax);
  return said[0] != 0;
}

/// In the order of their forward passes.
std::vector<int> Trainer::list_micro_batches() const {
  std::vector<int> own;
  const int stage = executor_->program().own_stages().front();
  for (const Instruction& instruction : executor_->program().instructions) {
    if (instruction.op == OpCode::kForward && instruction.stage == stage) own.push_back(instruction.micro_batch);
  }
  return own;
}

SampleParts Trainer::parts_to_read() const { return {part_->has_first(), part_->has_last()}; }

void Trainer::start_reading() {
  const SampleParts parts = parts_to_read();
  if (parts == SampleParts{false, false}) return;
  const int64_t micro = plan_.micro_batch, own = std::ssize(micro_batches_);
  auto reader = std::make_unique<ReadAhead>(
      SampleStream(data_.train, static_cast<uint64_t>(config_.train.seed), SampleOrder::kShuffled, parts),
      [this, micro, own, batch = plan_.global_batch, start = samples_done_, next = int64_t{0}]() mutable {
        const int64_t number = next++;
        const int64_t micro_batch = micro_batches_[static_cast<size_t>(number % own)];
        return std::optional(BatchRange{start + number / own * batch + micro_batch * micro, micro});
      },
      ReadAheadOptions{.depth = static_cast<int>(std::max<int64_t>(1, config_.data.read_ahead * own))});
  if (inputs_) {  // a graph reads where the earlier inputs lie
    inputs_->read_from(std::move(reader));
  } else {
    inputs_ = std::make_unique<StepInputs>(device_, data_.train->shape(), own, std::move(reader));
  }
}

torch::Tensor Trainer::forward(const ModelPart::StagePart& stage, const torch::Tensor& x, int micro_batch,
                               torch::Tensor values) {
  const auto own = std::find(micro_batches_.begin(), micro_batches_.end(), micro_batch) - micro_batches_.begin();
  const Inputs inputs = inputs_ ? inputs_->at(static_cast<size_t>(own)) : Inputs();
  const RandomScope scope({static_cast<uint64_t>(config_.train.seed), static_cast<uint64_t>(steps_done_),
                           static_cast<uint64_t>(micro_batch)});
  const bool is_last = part_->is_last(stage);
  torch::Tensor output;
  {
    const Autocast autocast(device_, compute_type_);
    output = part_->forward(stage, part_->is_first(stage) ? inputs.input : x, config_.model.seq,
                            is_last ? inputs.target : torch::Tensor());
  }
  if (is_last && on_loss_) on_loss_(output);
  {
    const torch::NoGradGuard no_grad;
    if (is_last) {
      values[kLoss].copy_(output.detach());
    } else {
      values[kLoss].zero_();
    }
    values[kStop].fill_(stop_ ? 1 : 0);
    int64_t at = kNumValues;
    for (const Statistic& statistic : stage.statistics) {
      const int64_t count = statistic.running.numel();
      values.narrow(0, at, count).copy_(statistic.observed->detach().flatten());
      at += count;
    }
  }
  if (!is_last || compute_type_ != torch::kFloat16) return output;
  return device_scale_.defined() ? output * device_scale_ : output * loss_scale_.scale;
}

StepReport Trainer::step(bool stop) {
  const auto start = Clock::now();
  StepReport report;
  stop_ = agree(stop);
  world_.set_step(static_cast<uint64_t>(steps_done_));
  set_fault_step(static_cast<uint64_t>(steps_done_));
  executor_->set_step(static_cast<uint64_t>(steps_done_));
  if (momentum_) {
    sends_momentum_ = momentum_->is_due(updates_done_);
    executor_->reducer().set_sink(sends_momentum_ ? [](int) {} : std::function<void(int)>());
  }
  fault_point("train.step");
  part_->model().train();
  if (faults_armed()) {
    part_->stages()[0].gradients->on_gradient = [](size_t source, const torch::Tensor& gradient) {
      if (source == 0 && fault_errno("train.gradient") != 0) gradient.view(-1)[0] = std::nanf("");
    };
  }
  report.learning_rate = learning_rate(config_.optimizer, steps_done_, config_.train.steps, plan_.dp);
  if (inputs_) report.data_s = inputs_->next();
  if (num_updates() > 1) {
    run_updates(report);
  } else if (device_.is_cuda() && !host_updates()) {
    run_on_device(report);
  } else {
    if (server_) server_->begin_step(own_tokens());
    run_on_host(report);
  }
  if (num_updates() == 1 && !report.skipped) ++updates_done_;
  ++steps_here_;
  ++steps_done_;
  samples_done_ += plan_.global_batch;
  report.step = steps_done_;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

/// Whether the host decides about the end of a step, and waits for it: always, but on GPUs whose optimizer is there.
bool Trainer::host_updates() const {
  return server_ || sums_alone_ || sends_momentum_ || parameters().masters_on_host();
}

/// Of the micro-batches of the step to come; none where nobody asks.
std::vector<torch::Tensor> Trainer::own_tokens() const {
  std::vector<torch::Tensor> tokens;
  for (int64_t i = 0; server_->needs_tokens() && i < std::ssize(micro_batches_); ++i) {
    tokens.push_back(inputs_->at(static_cast<size_t>(i)).input);
  }
  return tokens;
}

void Trainer::run_on_host(StepReport& report) {
  const Fp8Scope fp8(fp8_.get());
  if (fp8_) fp8_->copy_weights();
  if (device_scale_.defined() && compute_type_ == torch::kFloat16) device_scale_.fill_(loss_scale_.scale);
  report.times = executor_->run([this, &report](int) { apply_gradients(report); });
  if (fp8_) update_fp8_scales();
  if (inputs_) inputs_->prefetch();
}

/// The host only enqueues, then waits once. After some steps the whole step is one graph.
void Trainer::run_on_device(StepReport& report) {
  const Fp8Scope fp8(fp8_.get());
  const auto enqueue = [this] {
    if (fp8_) fp8_->copy_weights();
    executor_->run([this](int) {
      part_->add_shared_gradients();
      device_update_->enqueue(values_of(part_->stages().back()));
      part_->parameters().mark_all_stale();
      part_->share_weights();
    });
    if (fp8_) update_fp8_scales();
  };
  const auto start = Clock::now();
  device_update_->prepare(updates_done_, report.learning_rate, gradient_factor_ / loss_scale_.scale);
  if (compute_type_ == torch::kFloat16) device_scale_.fill_(loss_scale_.scale);
  if (!graph_->captured() && steps_here_ >= kWarmupSteps && can_capture()) graph_->capture(enqueue);
  if (graph_->captured()) {
    graph_->replay();
  } else {
    enqueue();
  }
  if (inputs_) inputs_->prefetch();
  report.enqueue_s = std::chrono::duration<double>(Clock::now() - start).count();
  const DeviceUpdate::Outcome outcome = device_update_->read();
  const float* values = outcome.values.const_data_ptr<float>();
  std::vector<double> loss = {values[kLoss]};  // 0 but for the last stage
  groups_.sum_over_stages(loss);
  report.loss = loss[0] / static_cast<double>(plan_.num_micro_batches);
  report.stop_wanted = world_.size() == 1 ? stop_ : values[kStop] > 0;  // a graph has the flag of its capture
  report.gradient_norm = outcome.gradient_norm;
  report.skipped = outcome.skipped;
  conclude(report, std::isfinite(report.loss));
}

/// Every rank notes the largest values of its own samples: their maximum keeps the weights alike on all.
void Trainer::update_fp8_scales() {
  if (world_.size() == 1) return fp8_->update_scales();
  fp8_->update_scales([this](torch::Tensor& largest) {
    world_.comm().all_reduce(data_of(largest), ReduceOp::kMax, call_options(device_));
  });
}

/// Not where host code inside the step decides what happens: meetings with other ranks, dropout's masks, faults.
bool Trainer::can_capture() const {
  return config_.train.graph && world_.size() == 1 && config_.model.dropout == 0 && !faults_armed();
}

/// What the update is to be made with lies in slot 0, unless servers have it.
void Trainer::collect_gradients() {
  if (server_) return;
  if (sums_alone_ || sends_momentum_) add_own_partials(*part_, executor_->program(), groups_.replica);
  part_->add_shared_gradients();
  if (sends_momentum_) {
    momentum_->exchange([this](size_t share) { return part_->gradient(share); }, gradient_factor_, steps_done_);
  }
  if (adasum_) adasum_->combine();
  if (host_gradients_) host_gradients_->fetch();
}

/// Of a share, for an optimizer on the host.
torch::Tensor Trainer::host_gradient(size_t share) const {
  return host_gradients_ ? host_gradients_->of_share(share) : part_->gradient(share).to(torch::kFloat32);
}

/// With the gradients that are there, times a factor.
void Trainer::update_weights(int64_t update, double lr, double factor) {
  if (device_update_) {
    device_update_->prepare(update, lr, factor);
    return device_update_->enqueue_update();
  }
  optimizer_->update([this](size_t share) { return host_gradient(share); }, factor, lr, update);
}

void Trainer::apply_gradients(StepReport& report) {
  collect_gradients();
  const double factor = sends_momentum_ ? 1 : gradient_factor_ / loss_scale_.scale;
  const Totals totals = this->totals(values_of(part_->stages().back()).cpu().const_data_ptr<float>()[kLoss]);
  report.loss = totals.loss / static_cast<double>(plan_.num_micro_batches);
  report.stop_wanted = totals.stop;
  const double own_norm = totals.norm * factor;
  report.gradient_norm = local_ ? local_->mean_norm(own_norm) : own_norm;
  const bool loss_is_finite = std::isfinite(totals.loss);
  report.skipped = !std::isfinite(report.gradient_norm) || !loss_is_finite;
  const double clip = config_.train.clip;
  const double clipped = clip > 0 && own_norm > clip ? factor * clip / own_norm : factor;
  if (server_) {
    server_->update(clipped, report.learning_rate, !report.skipped);
  } else if (!report.skipped) {
    if (sends_momentum_) {
      momentum_->update(report.learning_rate);
    } else {
      update_weights(updates_done_, report.learning_rate, clipped);
    }
    part_->share_weights();
  }
  conclude(report, loss_is_finite);
  if (local_) meet_replicas(report);
}

/// As planned, and where training ends.
void Trainer::meet_replicas(const StepReport& report) {
  local_->after_step(steps_done_);
  if (report.stop_wanted || steps_done_ + 1 == config_.train.steps) local_->settle();
}

/// After the update, or after it was skipped: counts, blames, and adapts the loss scale.
void Trainer::conclude(StepReport& report, bool loss_is_finite) {
  if (report.skipped && (compute_type_ != torch::kFloat16 || !loss_is_finite || loss_scale_.scale <= 1)) {
    const BadNumber bad = find_bad_number().value_or(BadNumber{});
    if (config_.train.on_nan == "stop") stop_for(bad);
    ++bad_steps_;
    report.bad = bad.to_string(steps_done_);
    return;
  }
  if (compute_type_ == torch::kFloat16) {
    loss_scale_.update(!report.skipped, config_.precision.loss_scale_growth_every);
  }
  if (report.skipped) return;
  for (const ModelPart::StagePart& stage : part_->stages()) update_statistics(stage);
}

void Trainer::update_statistics(const ModelPart::StagePart& stage) {
  const torch::NoGradGuard no_grad;
  const double share = static_cast<double>(num_updates()) / static_cast<double>(plan_.num_micro_batches);
  int64_t at = kNumValues;
  for (const Statistic& statistic : stage.statistics) {
    const int64_t count = statistic.running.numel();
    const torch::Tensor mean = values_of(stage).narrow(0, at, count).view(statistic.running.sizes()) * share;
    statistic.running.lerp_(mean, statistic.momentum);
    at += count;
  }
}

torch::Tensor Trainer::run_forward(const torch::Tensor& input, int64_t seq, int lane) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(device_, compute_type_);
  if (server_) server_->finish_pulls();
  part_->model().eval();
  return part_->predict(input, seq, lane);
}

torch::Tensor Trainer::predict(const torch::Tensor& input) {
  torch::Tensor logits;
  for (int lane = 0; lane < groups_.lanes; ++lane) {
    logits = run_forward(input, input.dim() > 1 ? input.size(1) : 0, groups_.first_lane + lane);
  }
  part_->finish_predictions();
  if (groups_.pp == 1) return logits;
  // What the last stage has: its shape, then itself.
  const int last = part_->rank_of_last();
  const torch::Tensor form = logits.defined() ? form_to_numbers(form_of(logits)) : empty_form();
  groups_.share_of_stage(form, last);
  const TensorForm known = form_from_numbers(form);
  logits = logits.defined() ? logits.contiguous()
                            : torch::empty(known.sizes, torch::TensorOptions().dtype(known.type).device(device_));
  groups_.share_of_stage(logits, last);
  return logits;
}

}  // namespace trireme
