#include "trireme/train/trainer.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/config/resolve.h"
#include "trireme/models/batch_norm.h"
#include "trireme/models/functions.h"
#include "trireme/parallel/tensor/recipes.h"
#include "trireme/program/check.h"
#include "trireme/program/data_parallel.h"
#include "trireme/tensor/random_scope.h"
#include "trireme/train/optimizer_kernels.h"

namespace trireme {
namespace {

// What is summed over micro-batches beside gradients: these, then the statistics.
enum Value : int64_t { kLoss, kStop, kNumValues };

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

/// Groups are alike, so one stands for all. The work grows with ranks times leaves: large jobs leave it to the tests.
void check_all_ranks(const DataParallelShape& shape) {
  constexpr int kMostRanks = 64;
  if (shape.num_ranks > kMostRanks) return;
  std::vector<Program> programs;
  for (int rank = 0; rank < shape.num_ranks; ++rank) programs.push_back(lower_data_parallel(shape, rank));
  check_programs(programs, shape.num_leaves);
}

struct FoundBad {
  int32_t micro_batch = -1;
  char parameter[124] = {};
};

}  // namespace

std::string BadNumber::to_string(int64_t step) const {
  if (!reproduced) {
    return fmt::format(
        "step {}: the summed gradients are not finite, but every worker's own are when computed again: a fault of "
        "memory, "
        "processor or network, or gradients whose sum is beyond float32",
        step);
  }
  return fmt::format("step {}: {} is not finite, first on rank {} in micro-batch {}", step,
                     parameter == "loss" ? "the loss" : "the gradient of " + parameter, rank, micro_batch);
}

Trainer::Trainer(World& world, const Config& config, const OpenedData& data)
    : world_(world),
      config_(config),
      plan_(check(config, world.size())),
      data_(data),
      device_(open_device(config.train.device, world.local_rank())),
      model_(make_model(config.model, static_cast<uint64_t>(config.train.seed))),
      compute_type_(scalar_type_of(config.precision.compute)),
      loss_scale_(LossScale::of(config.precision)) {
  torch::set_num_threads(static_cast<int>(config.train.threads));
  ops::set_deterministic(config.train.deterministic);
  model_->set_recompute(parse_recompute(config.train.recompute));
  if (device_.is_cuda()) model_->to(device_);
  if (world.size() > 1) attach_device(world.comm(), device_);
  form_groups();
  parameters_ = std::make_unique<ParameterStore>(*model_, compute_type_);
  statistics_ = model_->statistics();
  if (config.model.sync_statistics && replicas() != nullptr) {
    set_sum_over_replicas(*model_, [this](torch::Tensor& sums) {
      replicas()->all_reduce(data_of(sums), ReduceOp::kSum, call_options(device_));
    });
  }

  std::vector<GradientSource> sources;
  for (const ParameterStore::Entry& entry : parameters_->entries()) {
    source_of_entry_.push_back(sources.size());
    sources.push_back({entry.name, entry.parameter});
  }
  for (const SharedUse& shared : model_->shared_uses()) {
    const int entry = parameters_->find(shared.parameter);
    if (entry < 0) throw Error(fmt::format("{} is shared, but no parameter", shared.parameter));
    shared.use->set_data(parameters_->entries()[static_cast<size_t>(entry)].parameter.detach());
    shared_sources_.emplace_back(sources.size(), static_cast<size_t>(entry));
    sources.push_back({shared.parameter + " (second use)", *shared.use});
  }

  Communicator* comm = replicas();
  DataParallelShape shape{static_cast<int>(plan_.num_micro_batches), static_cast<int>(plan_.leaves),
                          static_cast<int>(plan_.dp), 1};
  const Program sketch = lower_data_parallel(shape, replica_);
  check_all_ranks(shape);
  const auto travel_type = config.precision.gradients == "compute" ? compute_type_ : torch::kFloat32;
  GradientStoreOptions store;
  store.num_slots = sketch.num_slots;
  store.num_shared_slots = sketch.across.direct ? 1 : sketch.num_slots;
  store.group_bytes = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20));
  store.first_group_bytes = std::min<int64_t>(store.group_bytes, 1 << 20);
  if (plan_.accumulation == 1) store.type = travel_type;  // sums need float32, copies do not
  gradients_ = std::make_unique<GradientStore>(comm, std::move(sources), store);

  shape.num_groups = gradients_->num_groups() + 1;
  int64_t num_values = kNumValues;
  for (const Statistic& statistic : statistics_) num_values += statistic.running.numel();
  executor_ = std::make_unique<Executor>(lower_data_parallel(shape, replica_), *gradients_, comm, num_values,
                                         travel_type, config.parallel.overlap);
  optimizer_ = std::make_unique<Optimizer>(config.optimizer, *parameters_);
  if (device_.is_cuda()) {
    device_update_ = std::make_unique<DeviceUpdate>(
        config.optimizer, config.train.clip, *parameters_, *optimizer_,
        [this](size_t entry) { return gradients_->gradient(0, source_of_entry_[entry]); });
    if (model_ranks_) {
      device_update_->set_sum_over_model([this](torch::Tensor& sum) {
        const CallOptions options = call_options(device_);
        model_ranks_->start_all_reduce(data_of(sum), ReduceOp::kSum, options).wait_on(options.stream);
      });
    }
    device_scale_ = torch::ones({}, torch::TensorOptions().device(device_));
    if (config.precision.matmul == "fp8") fp8_ = std::make_unique<Fp8Products>(*model_);
    graph_ = std::make_unique<DeviceGraph>(device_);
  }
  gradient_factor_ = config.parallel.aggregation == "sum" ? 1 : 1.0 / static_cast<double>(plan_.num_micro_batches);
  start_reading();
}

Trainer::~Trainer() = default;

/// With tensor parallelism: which ranks share a model and which hold the same part, and parameters as mesh tensors.
void Trainer::form_groups() {
  const int tp = static_cast<int>(config_.parallel.tp);
  replica_ = world_.rank() / tp;
  if (tp == 1) return;
  const int place = world_.rank() % tp;
  model_ranks_ = world_.comm().split(replica_, place);
  replicas_ = world_.comm().split(place, replica_);
  tensor_mesh_ = DeviceMesh::make(*model_ranks_, Mesh({{"tp", tp}}));
  tensor_mesh_->set_sequence_parallel(config_.parallel.sequence);
  for (const LayoutRules rules = tensor_parallel_rules(config_.model, tp);
       const auto& item : model_->named_parameters()) {
    torch::Tensor parameter = item.value();
    parameter.set_data(distribute(parameter, tensor_mesh_, placements_for(item.key(), rules, tensor_mesh_->mesh())));
  }
}

/// Whether any rank of this model says so. Replicas learn it with their gradients.
bool Trainer::agree(bool flag) {
  if (!model_ranks_) return flag;
  std::vector<int32_t> said = {flag ? 1 : 0};
  model_ranks_->all_reduce(said, ReduceOp::kMax);
  return said[0] != 0;
}

void Trainer::start_reading() {
  const int64_t micro = plan_.micro_batch, own = num_own_micro_batches(), first = replica_ * own;
  auto reader = std::make_unique<ReadAhead>(
      SampleStream(data_.train, static_cast<uint64_t>(config_.train.seed)),
      [micro, own, first, batch = plan_.global_batch, start = samples_done_, next = int64_t{0}]() mutable {
        const int64_t number = next++;
        return std::optional(BatchRange{start + number / own * batch + (first + number % own) * micro, micro});
      },
      ReadAheadOptions{.depth = static_cast<int>(std::max<int64_t>(1, config_.data.read_ahead * own))});
  if (inputs_) {  // a graph reads where the earlier inputs lie
    inputs_->read_from(std::move(reader));
  } else {
    inputs_ = std::make_unique<StepInputs>(device_, data_.train->shape(), own, std::move(reader));
  }
}

torch::Tensor Trainer::forward(int micro_batch, torch::Tensor values) {
  const Inputs& inputs = inputs_->at(static_cast<size_t>(micro_batch - replica_ * num_own_micro_batches()));
  const RandomScope scope({static_cast<uint64_t>(config_.train.seed), static_cast<uint64_t>(steps_done_),
                           static_cast<uint64_t>(micro_batch)});
  torch::Tensor loss;
  {
    const Autocast autocast(device_, compute_type_);
    loss = model_->forward_loss(inputs.input, inputs.target);
  }
  const torch::NoGradGuard no_grad;
  values[kLoss].copy_(loss.detach());
  values[kStop].fill_(stop_ ? 1 : 0);
  int64_t at = kNumValues;
  for (const Statistic& statistic : statistics_) {
    const int64_t count = statistic.running.numel();
    values.narrow(0, at, count).copy_(statistic.observed->detach().flatten());
    at += count;
  }
  const torch::AutoGradMode with_gradient(true);
  if (compute_type_ != torch::kFloat16) return loss;
  return device_scale_.defined() ? loss * device_scale_ : loss * loss_scale_.scale;
}

StepReport Trainer::step(bool stop) {
  const auto start = Clock::now();
  StepReport report;
  stop_ = agree(stop);
  world_.set_step(static_cast<uint64_t>(steps_done_));
  set_fault_step(static_cast<uint64_t>(steps_done_));
  fault_point("train.step");
  model_->train();
  if (faults_armed()) {
    gradients_->on_gradient = [](size_t source, const torch::Tensor& gradient) {
      if (source == 0 && fault_errno("train.gradient") != 0) gradient.view(-1)[0] = std::nanf("");
    };
  }
  report.learning_rate = learning_rate(config_.optimizer, steps_done_, config_.train.steps, plan_.dp);
  report.data_s = inputs_->next();
  if (device_.is_cuda()) {
    run_on_device(report);
  } else {
    run_on_host(report);
  }
  ++steps_here_;
  ++steps_done_;
  samples_done_ += plan_.global_batch;
  report.step = steps_done_;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

void Trainer::run_on_host(StepReport& report) {
  report.times = executor_->run({[this](int micro_batch, torch::Tensor values) { return forward(micro_batch, values); },
                                 [this, &report] { apply_gradients(report); }});
  const float* values = executor_->values().const_data_ptr<float>();
  report.loss = values[kLoss] / static_cast<double>(plan_.num_micro_batches);
  report.stop_wanted = values[kStop] > 0;
}

/// The host only enqueues, then waits once. After some steps the whole step is one graph.
void Trainer::run_on_device(StepReport& report) {
  const Fp8Scope fp8(fp8_.get());
  const auto enqueue = [this] {
    if (fp8_) fp8_->copy_weights();
    executor_->run({[this](int micro_batch, torch::Tensor values) { return forward(micro_batch, values); },
                    [this] {
                      add_shared_gradients();
                      device_update_->enqueue(executor_->values());
                    }});
    if (fp8_) update_fp8_scales();
  };
  const auto start = Clock::now();
  device_update_->prepare(steps_done_, report.learning_rate, gradient_factor_ / loss_scale_.scale);
  if (compute_type_ == torch::kFloat16) device_scale_.fill_(loss_scale_.scale);
  if (!graph_->captured() && steps_here_ >= kWarmupSteps && can_capture()) graph_->capture(enqueue);
  if (graph_->captured()) {
    graph_->replay();
  } else {
    enqueue();
  }
  inputs_->prefetch();
  report.enqueue_s = std::chrono::duration<double>(Clock::now() - start).count();
  const DeviceUpdate::Outcome outcome = device_update_->read();
  const float* values = outcome.values.const_data_ptr<float>();
  report.loss = values[kLoss] / static_cast<double>(plan_.num_micro_batches);
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

void Trainer::apply_gradients(StepReport& report) {
  add_shared_gradients();
  const double factor = gradient_factor_ / loss_scale_.scale;
  report.gradient_norm = gradient_norm() * factor;
  const bool loss_is_finite = std::isfinite(executor_->values().const_data_ptr<float>()[kLoss]);
  report.skipped = !std::isfinite(report.gradient_norm) || !loss_is_finite;
  if (!report.skipped) {
    const double clip = config_.train.clip;
    const double clipped = clip > 0 && report.gradient_norm > clip ? factor * clip / report.gradient_norm : factor;
    optimizer_->update(
        [this](size_t entry) { return gradients_->gradient(0, source_of_entry_[entry]).to(torch::kFloat32); }, clipped,
        report.learning_rate, steps_done_);
  }
  conclude(report, loss_is_finite);
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
  if (!report.skipped) update_statistics();
}

/// Each use of a parameter was summed apart, over micro-batches and ranks; now they meet.
void Trainer::add_shared_gradients() {
  torch::NoGradGuard no_grad;
  for (const auto& [use, parameter] : shared_sources_) {
    gradients_->gradient(0, source_of_entry_[parameter]).add_(gradients_->gradient(0, use));
  }
}

double Trainer::gradient_norm() const {
  double sum = 0, sum_of_parts = 0;  // of what every rank of the model has whole, and of what it has a part of
  for (size_t entry = 0; entry < source_of_entry_.size(); ++entry) {
    const torch::Tensor gradient = gradients_->gradient(0, source_of_entry_[entry]).to(torch::kFloat32);
    const MeshSpec* spec = mesh_spec(parameters_->entries()[entry].parameter);
    (spec && !spec->layout->is_replicated ? sum_of_parts : sum) +=
        sum_of_squares(gradient.const_data_ptr<float>(), static_cast<size_t>(gradient.numel()));
  }
  if (model_ranks_) {
    std::vector<double> parts = {sum_of_parts};
    model_ranks_->all_reduce(parts);
    sum_of_parts = parts[0];
  }
  return std::sqrt(sum + sum_of_parts);
}

void Trainer::update_statistics() {
  torch::NoGradGuard no_grad;
  int64_t at = kNumValues;
  for (Statistic& statistic : statistics_) {
    const int64_t count = statistic.running.numel();
    const torch::Tensor mean = executor_->values().narrow(0, at, count).view(statistic.running.sizes()) *
                               (1.0 / static_cast<double>(plan_.num_micro_batches));
    statistic.running.lerp_(mean, statistic.momentum);
    at += count;
  }
}

/// The weights have not changed and everything else is a function of seed and step: each worker computes its part
/// again, alone, and looks at every gradient as it comes.
std::optional<BadNumber> Trainer::find_bad_number() {
  FoundBad found;
  int current = -1;
  const auto note = [&](const std::string& name) {
    if (found.micro_batch >= 0) return;
    found.micro_batch = current;
    std::strncpy(found.parameter, name.c_str(), sizeof found.parameter - 1);
  };
  const auto injected = gradients_->on_gradient;
  gradients_->on_gradient = [&](size_t source, const torch::Tensor& gradient) {
    if (injected) injected(source, gradient);
    if (found.micro_batch < 0 && !torch::isfinite(gradient).all().item<bool>())
      note(gradients_->sources()[source].name);
  };
  if (fp8_) fp8_->copy_weights();  // by the scales of now
  executor_->replay({[&](int micro_batch, torch::Tensor values) {
                       current = micro_batch;
                       const torch::Tensor loss = forward(micro_batch, values);
                       if (!std::isfinite(loss.item<float>())) note("loss");
                       return loss;
                     },
                     {}});
  gradients_->on_gradient = injected;

  std::vector<uint8_t> own(sizeof found), all(sizeof found * static_cast<size_t>(world_.size()));
  std::memcpy(own.data(), &found, sizeof found);
  world_.comm().all_gather(own, all);
  for (int rank = 0; rank < world_.size(); ++rank) {
    std::memcpy(&found, all.data() + sizeof found * static_cast<size_t>(rank), sizeof found);
    if (found.micro_batch >= 0) return BadNumber{rank, found.micro_batch, found.parameter, true};
  }
  return std::nullopt;
}

void Trainer::stop_for(const BadNumber& bad) const {
  throw Error(bad.to_string(steps_done_),
              "try a lower optimizer.lr or train.clip = 1; train.on_nan = \"skip\" or \"rollback\" would go on");
}

torch::Tensor Trainer::predict(const torch::Tensor& input) {
  torch::NoGradGuard no_grad;
  const Autocast autocast(device_, compute_type_);
  model_->eval();
  return full(model_->forward(input.to(device_)));
}

}  // namespace trireme
