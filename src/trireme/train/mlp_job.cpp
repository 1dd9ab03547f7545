#include "trireme/train/mlp_job.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "trireme/base/deadline.h"

namespace trireme {
namespace {

constexpr int64_t kTrainPoints = 8192, kHeldOutPoints = 2048;
constexpr int64_t kMicroBatch = 32;
constexpr int64_t kLeaves = 8;  // micro-batches a step, where the ranks divide them
constexpr int64_t kHidden = 128;
constexpr double kLearningRate = 3e-3, kTurns = 2.5, kNoise = 0.02;

struct Points {
  torch::Tensor positions, labels;
};

/// The same on every rank: drawn from a generator of its own, not from libtorch's global one.
Points make_spirals(int64_t count, uint64_t seed) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  const auto labels = torch::arange(count).remainder(2);
  const auto radius = torch::rand({count}, generator).sqrt();
  const auto angle = (radius * kTurns * 2 + labels) * std::numbers::pi;
  const auto exact = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return {exact + torch::randn({count, 2}, generator) * kNoise, labels};
}

uint64_t checksum_of(const std::vector<torch::Tensor>& tensors) {
  uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
  for (const torch::Tensor& tensor : tensors) {
    const std::span bytes(static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes());
    for (const uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3;
  }
  return sum;
}

class MlpJob {
 public:
  MlpJob(World& world, const MlpJobOptions& options)
      : world_(world),
        options_(options),
        leaves_per_rank_((kLeaves + world.size() - 1) / world.size()),
        train_(make_spirals(kTrainPoints, options.seed)),
        held_out_(make_spirals(kHeldOutPoints, ~options.seed)) {
    torch::manual_seed(options.seed);
    model_ = torch::nn::Sequential(torch::nn::Linear(2, kHidden), torch::nn::ReLU(),        //
                                   torch::nn::Linear(kHidden, kHidden), torch::nn::ReLU(),  //
                                   torch::nn::Linear(kHidden, kHidden), torch::nn::ReLU(),  //
                                   torch::nn::Linear(kHidden, 2));
    parameters_ = model_->parameters();
    for (const torch::Tensor& parameter : parameters_) num_parameters_ += parameter.numel();

    // One flat buffer that peers read in place: all gradients, then the loss. `grad` of a parameter is a view of it.
    buffer_ = world.comm().allocate<float>(static_cast<size_t>(num_parameters_ + 1));
    slots_.push_back(torch::from_blob(buffer_.data(), {num_parameters_ + 1}));
    for (int64_t at = 0; torch::Tensor & parameter : parameters_) {
      parameter.mutable_grad() = slots_[0].narrow(0, at, parameter.numel()).view_as(parameter);
      at += parameter.numel();
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(kLearningRate));
  }

  MlpResult run(const std::function<void(const MlpProgress&)>& on_progress) {
    MlpResult result;
    std::vector<double> step_seconds;
    const auto start = Clock::now();
    const auto seconds_since = [](Clock::time_point time) {
      return std::chrono::duration<double>(Clock::now() - time).count();
    };
    for (int step = 0; step < options_.steps; ++step) {
      const auto step_start = Clock::now();
      world_.set_step(static_cast<uint64_t>(step));
      result.final_loss = train_step(step);
      step_seconds.push_back(seconds_since(step_start));
      on_progress({.step = step + 1, .loss = result.final_loss, .samples_a_step = samples_a_step()});
    }
    result.seconds = seconds_since(start);
    result.steps = options_.steps;
    result.num_parameters = num_parameters_;
    result.num_held_out = kHeldOutPoints;
    result.samples_per_second = static_cast<double>(options_.steps * samples_a_step()) / result.seconds;
    std::nth_element(step_seconds.begin(), step_seconds.begin() + options_.steps / 2, step_seconds.end());
    result.step_ms = step_seconds[static_cast<size_t>(options_.steps / 2)] * 1000;
    result.accuracy = measure_accuracy();
    result.checksum = checksum_of(parameters_);
    result.equal_weights = same_everywhere(result.checksum);
    return result;
  }

 private:
  int64_t num_leaves() const { return leaves_per_rank_ * world_.size(); }
  int64_t samples_a_step() const { return num_leaves() * kMicroBatch; }

  /// Returns the loss over the whole batch.
  double train_step(int step) {
    sum_leaves(step * num_leaves() + world_.rank() * leaves_per_rank_, leaves_per_rank_, 0);
    world_.comm().all_reduce(buffer_);
    slots_[0].mul_(1.0 / static_cast<double>(num_leaves()));
    const double cosine = (1 + std::cos(std::numbers::pi * step / options_.steps)) / 2;
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(kLearningRate * cosine);
    optimizer_->step();
    return buffer_[static_cast<size_t>(num_parameters_)];
  }

  /// Adds the gradients of consecutive micro-batches into a slot, along the tree that splits at the largest power of
  /// two below the count. The all-reduce continues the same tree over the ranks.
  void sum_leaves(int64_t first, int64_t count, size_t slot) {
    if (slots_.size() == slot) slots_.push_back(torch::empty({num_parameters_ + 1}));
    if (count == 1) return compute_leaf(first, slots_[slot]);
    const auto left = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)) / 2);
    sum_leaves(first, left, slot);
    sum_leaves(first + left, count - left, slot + 1);
    slots_[slot].add_(slots_[slot + 1]);
  }

  void compute_leaf(int64_t leaf, torch::Tensor slot) {
    const int64_t leaves_an_epoch = kTrainPoints / kMicroBatch;
    const auto chosen =
        order_of_epoch(leaf / leaves_an_epoch).narrow(0, leaf % leaves_an_epoch * kMicroBatch, kMicroBatch);
    const auto output = model_->forward(train_.positions.index_select(0, chosen));
    const auto loss = torch::nn::functional::cross_entropy(output, train_.labels.index_select(0, chosen));
    std::vector<torch::Tensor> parts = torch::autograd::grad({loss}, parameters_);
    for (torch::Tensor& part : parts) part = part.flatten();
    parts.push_back(loss.detach().view(1));
    torch::cat_out(slot, parts);
  }

  /// Ranks draw the same order and take different parts of it.
  const torch::Tensor& order_of_epoch(int64_t epoch) {
    if (epoch != epoch_) {
      auto generator = torch::make_generator<torch::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch));
      order_ = torch::randperm(kTrainPoints, generator);
      epoch_ = epoch;
    }
    return order_;
  }

  double measure_accuracy() {
    torch::NoGradGuard no_grad;
    const int64_t first = kHeldOutPoints * world_.rank() / world_.size();
    const int64_t count = kHeldOutPoints * (world_.rank() + 1) / world_.size() - first;
    const auto predicted = model_->forward(held_out_.positions.narrow(0, first, count)).argmax(1);
    std::vector<int64_t> right = {predicted.eq(held_out_.labels.narrow(0, first, count)).sum().item<int64_t>()};
    world_.comm().all_reduce(right);
    return static_cast<double>(right[0]) / kHeldOutPoints;
  }

  bool same_everywhere(uint64_t checksum) {
    const std::vector<int64_t> own = {static_cast<int64_t>(checksum)};
    std::vector<int64_t> all(static_cast<size_t>(world_.size()));
    world_.comm().all_gather(own, all);
    return std::all_of(all.begin(), all.end(), [&](int64_t other) { return other == own[0]; });
  }

  World& world_;
  const MlpJobOptions options_;
  const int64_t leaves_per_rank_;
  const Points train_, held_out_;
  torch::nn::Sequential model_;
  std::vector<torch::Tensor> parameters_;
  int64_t num_parameters_ = 0;
  TypedBuffer<float> buffer_;
  std::vector<torch::Tensor> slots_;  ///< sums of gradients and loss; the first is the buffer
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  int64_t epoch_ = -1;
  torch::Tensor order_;
};

}  // namespace

MlpResult run_mlp_job(World& world, const MlpJobOptions& options,
                      const std::function<void(const MlpProgress&)>& on_progress) {
  torch::set_num_threads(1);
  return MlpJob(world, options).run(on_progress);
}

}  // namespace trireme
