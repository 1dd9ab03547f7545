// The norm of all gradients, wherever they lie, and steps with several updates.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "trireme/base/error.h"
#include "trireme/optimizer/kernels.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/share_result.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

constexpr int64_t kBlocksPerThread = 16;  // at least

size_t blocks_of(int64_t count) { return (static_cast<size_t>(count) + kSquaresBlock - 1) / kSquaresBlock; }

}  // namespace

/// The sums over the blocks of each share's gradient, share by share.
std::vector<double> Trainer::block_squares() const {
  if (device_update_) return device_update_->block_squares();
  std::vector<double> sums;
  const std::vector<ParameterStore::Share>& shares = parameters().shares();
  for (size_t i = 0; i < shares.size(); ++i) {
    const torch::Tensor gradient = host_gradient(i);
    const float* const values = gradient.const_data_ptr<float>();
    const size_t count = static_cast<size_t>(shares[i].count), num_blocks = blocks_of(shares[i].count);
    sums.resize(sums.size() + num_blocks);
    double* const own = sums.data() + sums.size() - num_blocks;
    at::parallel_for(0, static_cast<int64_t>(num_blocks), kBlocksPerThread, [&](int64_t begin, int64_t end) {
      for (auto block = static_cast<size_t>(begin); block < static_cast<size_t>(end); ++block) {
        const size_t at = block * kSquaresBlock;
        own[block] = trireme::block_squares(values + at, std::min(kSquaresBlock, count - at));
      }
    });
  }
  return sums;
}

/// Of the gradient of each entry, from the sums over its blocks, whoever has them.
std::vector<double> Trainer::squares() const {
  if (server_) return server_->squares();
  std::vector<size_t> first = {0};
  for (const ParameterStore::Entry& entry : parameters().entries()) {
    first.push_back(first.back() + blocks_of(local_part(entry.parameter).numel()));
  }
  std::vector<double> blocks(first.back(), 0.0);
  Communicator* const sharers = groups_.sharers();
  const std::vector<double> own = block_squares();
  auto next = own.begin();
  for (const ParameterStore::Share& share : parameters().shares()) {
    const auto from = next;
    next += static_cast<std::ptrdiff_t>(blocks_of(share.count));
    // What all have counts once.
    if (sharers && sharers->rank() > 0 && !parameters().entries()[share.entry].is_shared) continue;
    const size_t at = first[share.entry] + static_cast<size_t>(share.first) / kSquaresBlock;
    std::copy(from, next, blocks.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (sharers) sharers->all_reduce(blocks);
  std::vector<double> squares;
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    squares.push_back(add_block_squares(std::span(blocks).subspan(first[i], first[i + 1] - first[i])));
  }
  return squares;
}

/// Sums follow the order of the whole model's parameters, wherever they are: so no cut changes a bit.
Trainer::Totals Trainer::totals(double own_loss) const {
  const std::vector<ModelPart::Weight>& weights = part_->weights();
  const size_t count = weights.size();
  // Of each parameter the square of its gradient, then the loss; of a parameter that is cut, this rank's part at first.
  std::vector<double> numbers(count + 1, 0.0), parts(count, 0.0);
  const std::vector<double> squares = this->squares();
  for (size_t i = 0; i < count; ++i) {
    if (weights[i].entry < 0) continue;
    const auto entry = static_cast<size_t>(weights[i].entry);
    const MeshSpec* spec = mesh_spec(parameters().entries()[entry].parameter);
    (spec && !spec->layout->is_replicated ? parts : numbers)[i] = squares[entry];
  }
  if (groups_.tensor()) groups_.tensor()->all_reduce(parts);
  for (size_t i = 0; i < count; ++i) numbers[i] += parts[i];
  const torch::Tensor values = values_of(part_->stages().back()).cpu();
  if (part_->has_last()) numbers.back() = own_loss;
  groups_.sum_over_stages(numbers);
  const double sum = std::accumulate(numbers.begin(), numbers.end() - 1, 0.0);
  return {std::sqrt(sum), numbers.back(), values.const_data_ptr<float>()[kStop] > 0};
}

/// Each stage is updated while micro-batches are under way in others.
void Trainer::run_updates(StepReport& report) {
  loss_sum_ = torch::zeros({}, torch::TensorOptions().device(device_).dtype(torch::kFloat64));
  report.times = executor_->run([this, &report](int stage) { update_stage(stage, report); });
  if (inputs_) inputs_->prefetch();
  finish_updates(report);
}

/// One of several updates in a step. Where there are several, a rank has one stage.
void Trainer::update_stage(int number, const StepReport& report) {
  const auto& stages = part_->stages();
  const auto stage =
      std::find_if(stages.begin(), stages.end(), [&](const auto& each) { return each.number == number; });
  if (part_->is_last(*stage)) loss_sum_.add_(values_of(*stage)[kLoss]);
  if (host_gradients_) host_gradients_->fetch();
  update_weights(updates_done_++, report.learning_rate, gradient_factor_);
  update_statistics(*stage);
}

/// The norm is that of the last update.
void Trainer::finish_updates(StepReport& report) {
  const Totals totals = this->totals(loss_sum_.item<double>());
  report.loss = totals.loss / static_cast<double>(plan_.num_micro_batches);
  report.stop_wanted = totals.stop;
  report.gradient_norm = totals.norm * gradient_factor_;
  if (std::isfinite(totals.loss) && std::isfinite(totals.norm)) return;
  report.skipped = true;
  ++bad_steps_;
  report.bad = fmt::format("step {}: the {} not finite, and the weights have been updated with it", steps_done_,
                           std::isfinite(totals.loss) ? "gradients are" : "loss is");
  if (config_.train.on_nan != "stop") return;
  throw_once(world_.comm(), Error(report.bad, "go back to the newest checkpoint with a lower optimizer.lr"));
}

}  // namespace trireme
